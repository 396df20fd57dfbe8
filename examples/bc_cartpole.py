"""Behaviour cloning balances CartPole-v1 as an expert does: ``python examples/bc_cartpole.py --help`` lists options.

Learning uses 20 episodes of an expert and no environment; steps are updates.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro

import pytorchrl as prl
from pytorchrl.experiments import collect_demonstrations


@dataclass
class Arguments:
    """Hyper-parameters of the run."""

    env: str = "CartPole-v1"
    """The environment of the data, which the policy is evaluated in."""
    data: Path | None = None
    """A data set to learn from; 20 episodes of a linear controller are recorded into the run folder where left out."""
    seed: int = 1
    """Seed of all random numbers of the run, and of the recorded episodes."""
    target_steps: int = 2_000
    """Updates to train for."""
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Units of the policy's hidden layers."""
    lr: float = 1e-3
    """Learning rate at the start; it falls to 0, so that the policy settles."""
    mini_batch_size: int = 256
    """Transitions in a minibatch."""
    test_every: int = 500
    """Updates between evaluations."""
    device: str = "cpu"
    """Device to compute on: cpu or cuda."""
    log_to: tuple[str, ...] = ()
    """Further writers of metrics: wandb, tensorboard."""
    log_dir: Path = Path("runs") / f"bc-{time.strftime('%Y%m%d-%H%M%S')}"
    """The run folder; a new one under runs/ where left out."""


def expert(observation: Any) -> Any:
    """Push the cart below the pole: a linear controller, which balances it for all 500 steps of an episode."""
    position, velocity, angle, turning = observation.T
    return (angle + 0.3 * turning + 0.05 * position + 0.1 * velocity > 0).astype(np.int64)[:, None]


def compose(arguments: Arguments) -> prl.Scheme:
    """Record the expert if that was not done yet, and make the scheme that learns from it."""
    envs = prl.VecEnv.create_factory(arguments.env, num_envs=10)
    data = arguments.data or arguments.log_dir / "expert.npz"
    if not data.exists():
        collect_demonstrations(expert, envs, path=data, episodes=20, seed=arguments.seed)
    algorithm = prl.BehaviourCloning.create_factory(
        lr=prl.LinearSchedule(arguments.lr, 0.0),
        mini_batch_size=arguments.mini_batch_size,
        test_every=arguments.test_every,
    )
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=arguments.hidden_sizes)
    storage = prl.from_dataset(prl.ReplayBuffer.create_factory(size=100_000), data)
    return prl.Scheme(algorithm, actor, storage, test_envs_factory=envs, device=arguments.device, seed=arguments.seed)


def train(arguments: Arguments) -> prl.Learner:
    """Compose and train the run, and return its learner."""
    learner = prl.Learner(compose(arguments), arguments.target_steps, arguments.log_dir, log_to=arguments.log_to)
    learner.run()
    learner.close()
    return learner


if __name__ == "__main__":
    torch.set_num_threads(1)  # small networks run faster without a second thread
    learner = train(tyro.cli(Arguments, description=__doc__))
    learner.print_info()
    print(f"Learning curve: {learner.curve_file}")
    print(f"Run folder:     {learner.log_dir}")
    print(f"Train further:  {learner.resume_command} --target-steps {2 * learner.target_steps}")
    if learner.was_interrupted:
        raise SystemExit(130)  # as commands do after Ctrl-C or SIGTERM: a job scheduler may run it again
