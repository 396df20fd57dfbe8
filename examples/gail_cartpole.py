"""GAIL balances CartPole-v1 as an expert does: ``python examples/gail_cartpole.py --help`` lists what can be set.

The environment's rewards are not used: a discriminator rewards what looks like the expert's 20 episodes.
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
    """The environment of the expert, in which the policy acts."""
    data: Path | None = None
    """A data set of an expert; 20 episodes of a linear controller are recorded into the run folder where left out."""
    seed: int = 1
    """Seed of all random numbers of the run, and of the recorded episodes."""
    target_steps: int = 100_000
    """Environment steps to train for."""
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Units of the hidden layers of policy, value function and discriminator."""
    gamma: float = 0.99
    """Discount factor."""
    gae_lambda: float = 0.95
    """Lambda of GAE: 0 for one-step advantages, 1 for whole returns."""
    num_envs: int = 4
    """Copies of the environment."""
    rollout_steps: int = 500
    """Steps of each copy between updates."""
    max_kl: float = 0.01
    """Largest KL divergence of the policy in an update."""
    test_every: int = 10_000
    """Environment steps between evaluations."""
    device: str = "cpu"
    """Device to compute on: cpu or cuda."""
    log_to: tuple[str, ...] = ()
    """Further writers of metrics: wandb, tensorboard."""
    log_dir: Path = Path("runs") / f"gail-{time.strftime('%Y%m%d-%H%M%S')}"
    """The run folder; a new one under runs/ where left out."""


def expert(observation: Any) -> Any:
    """Push the cart below the pole: a linear controller, which balances it for all 500 steps of an episode."""
    position, velocity, angle, turning = observation.T
    return (angle + 0.3 * turning + 0.05 * position + 0.1 * velocity > 0).astype(np.int64)[:, None]


def compose(arguments: Arguments) -> prl.Scheme:
    """Record the expert if that was not done yet, and make the scheme that learns from it."""
    envs = prl.VecEnv.create_factory(arguments.env, num_envs=arguments.num_envs)
    data = arguments.data or arguments.log_dir / "expert.npz"
    if not data.exists():
        collect_demonstrations(expert, envs, path=data, episodes=20, seed=arguments.seed)
    algorithm = prl.GAIL.create_factory(
        gamma=arguments.gamma,
        max_kl=arguments.max_kl,
        test_every=arguments.test_every,
    )
    actor = prl.OnPolicyActor.create_factory(hidden_sizes=arguments.hidden_sizes)
    storage = prl.GAEBuffer.create_factory(size=arguments.rollout_steps, gae_lambda=arguments.gae_lambda)
    sources = {"expert": prl.from_dataset(prl.ReplayBuffer.create_factory(size=100_000), data)}
    return prl.Scheme(algorithm, actor, storage, envs, sources=sources, device=arguments.device, seed=arguments.seed)


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
