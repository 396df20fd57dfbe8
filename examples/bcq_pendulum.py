"""BCQ swings up Pendulum-v1 by what another run has stored: ``python examples/bcq_pendulum.py --help`` lists options.

The data is all that SAC stored while it learnt, from random actions to good ones. BCQ learns from it without acting:
steps are updates.
"""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro

import pytorchrl as prl
from storages.persistent.datasets import open_dataset, return_of


@dataclass
class Arguments:
    """Hyper-parameters of the run."""

    env: str = "Pendulum-v1"
    """The environment of the data, which the policy is evaluated in; its actions are bounded."""
    data: Path | None = None
    """A data set to learn from; SAC collects one beside the run folder where left out."""
    behaviour_steps: int = 8_000
    """Environment steps that SAC is trained for, which are the data."""
    seed: int = 1
    """All randomness of both runs follows from it."""
    target_steps: int = 5_000
    """Updates to train for."""
    hidden_sizes: tuple[int, ...] = (128, 128)
    """Units of the hidden layers of all networks."""
    lr: float = 1e-3
    """Learning rate of all networks at the start; it falls to 0, so that the policy settles."""
    gamma: float = 0.99
    """Discount factor."""
    phi: float = 0.05
    """The largest perturbation of an action like those of the data, in units of actions scaled to [-1, 1]."""
    mini_batch_size: int = 100
    """Transitions of an update."""
    test_every: int = 1_000
    """Updates between evaluations."""
    device: str = "cpu"
    """Where to compute."""
    log_to: tuple[str, ...] = ()
    """Further places for metrics: wandb, tensorboard."""
    log_dir: Path = Path("runs") / f"bcq-{time.strftime('%Y%m%d-%H%M%S')}"
    """The run folder; a new one under runs/ where left out."""


def collect(arguments: Arguments, directory: Path) -> None:
    """Train SAC, whose storage is kept on disk: random actions, and then better ones from episode to episode."""
    algorithm = prl.SAC.create_factory(lr_q=1e-3, test_every=0)
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=(64, 64))
    storage = prl.ReplayBuffer.create_factory(size=arguments.behaviour_steps, directory=directory)
    scheme = prl.Scheme(algorithm, actor, storage, prl.VecEnv.create_factory(arguments.env), seed=arguments.seed)
    learner = prl.Learner(scheme, arguments.behaviour_steps, directory.parent)
    learner.run()
    learner.close()


def data_of(arguments: Arguments) -> Path:
    """Where the data is."""
    return arguments.data or arguments.log_dir / "behaviour" / "replay"


def compose(arguments: Arguments) -> prl.Scheme:
    """Collect data where that was not done yet, and make what learns from it."""
    data = data_of(arguments)
    if not data.exists():
        collect(arguments, data)
    lr = prl.LinearSchedule(arguments.lr, 0.0)
    algorithm = prl.BCQ.create_factory(
        lr_vae=lr,
        lr_pi=lr,
        lr_q=lr,
        gamma=arguments.gamma,
        phi=arguments.phi,
        mini_batch_size=arguments.mini_batch_size,
        test_every=arguments.test_every,
    )
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=arguments.hidden_sizes)
    # A copy in memory: the data of the other run is only read.
    storage = prl.from_dataset(prl.ReplayBuffer.create_factory(size=100_000), data)
    envs = prl.VecEnv.create_factory(arguments.env, num_envs=10)
    return prl.Scheme(algorithm, actor, storage, test_envs_factory=envs, device=arguments.device, seed=arguments.seed)


def behaviour_return(arguments: Arguments) -> float:
    """Mean return of the data's whole episodes."""
    episodes = open_dataset(data_of(arguments))
    return float(np.mean([return_of(episode) for episode in episodes if episode.terminated or episode.truncated]))


def train(arguments: Arguments) -> prl.Learner:
    """Compose, train, and return the learner that did."""
    learner = prl.Learner(compose(arguments), arguments.target_steps, arguments.log_dir, log_to=arguments.log_to)
    learner.run()
    learner.close()
    return learner


if __name__ == "__main__":
    torch.set_num_threads(1)  # small networks run faster without a second thread
    chosen = tyro.cli(Arguments, description=__doc__)
    learner = train(chosen)
    learner.print_info()
    print(f"Mean return of the data: {behaviour_return(chosen):.1f}")
    print(f"Learning curve: {learner.curve_file}")
    print(f"Run folder:     {learner.log_dir}")
