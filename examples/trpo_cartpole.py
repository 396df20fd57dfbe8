"""TRPO balances the pole of CartPole-v1: ``python examples/trpo_cartpole.py --help`` lists what can be set.

``--env InvertedPendulum-v5`` balances one with continuous actions; it needs ``pip install gymnasium[mujoco]``.
"""

import time
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro

import pytorchrl as prl


@dataclass
class Arguments:
    """Hyper-parameters of the run."""

    env: str = "CartPole-v1"
    """A gymnasium id."""
    num_envs: int = 4
    """Environments stepped together."""
    seed: int = 1
    """Seed of all random numbers of the run."""
    target_steps: int = 150_000
    """Environment steps to train for."""
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Units of the hidden layers of policy and value function."""
    lr_value: float = 3e-3
    """Learning rate of the value function."""
    max_kl: float = 0.02
    """Largest KL divergence of the policy in an update at first; it falls to 0 over the run."""
    damping: float = 0.1
    """Added to the diagonal of the Fisher information."""
    value_epochs: int = 40
    """Epochs of the value function in an update."""
    gamma: float = 0.99
    """Discount factor."""
    gae_lambda: float = 0.95
    """Lambda of GAE: 0 trusts the value function, 1 the rewards."""
    rollout_steps: int = 256
    """Steps of each environment between updates."""
    test_every: int = 10_000
    """Environment steps between evaluations."""
    device: str = "cpu"
    """Device to compute on: cpu or cuda."""
    log_to: tuple[str, ...] = ()
    """Further writers of metrics: wandb, tensorboard."""
    log_dir: Path | None = None
    """The run folder; a new one under runs/ where left out."""


def train(arguments: Arguments) -> prl.Learner:
    """Compose and train the run, and return its learner."""
    envs = prl.VecEnv.create_factory(arguments.env, num_envs=arguments.num_envs)
    actor = prl.OnPolicyActor.create_factory(hidden_sizes=arguments.hidden_sizes)
    storage = prl.GAEBuffer.create_factory(size=arguments.rollout_steps, gae_lambda=arguments.gae_lambda)
    algorithm = prl.TRPO.create_factory(
        lr_value=arguments.lr_value,
        max_kl=prl.LinearSchedule(arguments.max_kl, 0.0),
        damping=arguments.damping,
        value_epochs=arguments.value_epochs,
        gamma=arguments.gamma,
        test_every=arguments.test_every,
    )
    scheme = prl.Scheme(algorithm, actor, storage, envs, device=arguments.device, seed=arguments.seed)
    name = f"trpo-{arguments.env}-{arguments.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    log_dir = arguments.log_dir or Path("runs") / name
    learner = prl.Learner(scheme, arguments.target_steps, log_dir, log_to=arguments.log_to)
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
