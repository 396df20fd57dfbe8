"""BCQ swings up Pendulum-v1 by data of mixed quality: ``python examples/bcq_pendulum.py --help`` lists what can be set.

No environment is acted in while learning: steps are updates. The data is of a controller with noise: none in a fifth of
the episodes, in another so much that it hardly ever swings up.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro

import pytorchrl as prl
from pytorchrl.experiments import collect_demonstrations
from storages.datasets import open_dataset, return_of


@dataclass
class Arguments:
    """Hyper-parameters of the run."""

    env: str = "Pendulum-v1"
    """The environment of the data, which the policy is evaluated in; its actions are bounded."""
    data: Path | None = None
    """A data set to learn from; 50 episodes of a controller are recorded into the run folder where left out."""
    seed: int = 1
    """All randomness of the run follows from it, the recorded episodes too."""
    target_steps: int = 4_000
    """Updates to train for."""
    hidden_sizes: tuple[int, ...] = (128, 128)
    """Units of the hidden layers of all networks."""
    lr: float = 1e-3
    """Learning rate of all networks at the start; it falls to 0, so that the policy settles."""
    gamma: float = 0.99
    """Discount factor."""
    phi: float = 0.05
    """The largest perturbation of an action like those of the data, in units of actions scaled to [-1, 1]."""
    latent_clip: float = 0.2
    """Bound of the latent numbers that actions are decoded from; a small one stays near what the data does most."""
    mini_batch_size: int = 256
    """Transitions of an update."""
    test_every: int = 2_000
    """Updates between evaluations."""
    device: str = "cpu"
    """Where to compute."""
    log_to: tuple[str, ...] = ()
    """Further places for metrics: wandb, tensorboard."""
    log_dir: Path = Path("runs") / f"bcq-{time.strftime('%Y%m%d-%H%M%S')}"
    """The run folder; a new one under runs/ where left out."""


def controller(seed: int) -> Callable[[Any], Any]:
    """Swings the pendulum up by its energy and holds it there, with normal noise: more of it in each environment."""
    random = np.random.default_rng(seed)

    def act(observation: Any) -> Any:
        cosine, sine, turning = observation.T
        missing_energy = 15 - (turning**2 / 2 + 15 * cosine)
        hold = -10 * np.arctan2(sine, cosine) - 2 * turning
        action = np.where(cosine > 0.9, hold, 0.5 * turning * missing_energy).clip(-2, 2)
        noise = random.normal(0, np.linspace(0, 4, len(action)))
        return (action + noise).clip(-2, 2)[:, None].astype(np.float32)

    return act


def data_of(arguments: Arguments) -> Path:
    """Where the data is, which is recorded where that was not done yet."""
    data = arguments.data or arguments.log_dir / "data.npz"
    if not data.exists():
        envs = prl.VecEnv.create_factory(arguments.env, num_envs=5)
        collect_demonstrations(controller(arguments.seed), envs, path=data, episodes=50, seed=arguments.seed)
    return data


def behaviour_return(arguments: Arguments) -> float:
    """Mean return of the data's episodes."""
    return float(np.mean([return_of(episode) for episode in open_dataset(data_of(arguments))]))


def compose(arguments: Arguments) -> prl.Scheme:
    """Make what learns from the data."""
    lr = prl.LinearSchedule(arguments.lr, 0.0)
    algorithm = prl.BCQ.create_factory(
        lr_vae=lr,
        lr_pi=lr,
        lr_q=lr,
        gamma=arguments.gamma,
        phi=arguments.phi,
        latent_clip=arguments.latent_clip,
        mini_batch_size=arguments.mini_batch_size,
        test_every=arguments.test_every,
    )
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=arguments.hidden_sizes)
    storage = prl.from_dataset(prl.ReplayBuffer.create_factory(size=100_000), data_of(arguments))
    envs = prl.VecEnv.create_factory(arguments.env, num_envs=10)
    return prl.Scheme(algorithm, actor, storage, test_envs_factory=envs, device=arguments.device, seed=arguments.seed)


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
