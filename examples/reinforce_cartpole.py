"""REINFORCE balances the pole of CartPole-v1; ``python examples/reinforce_cartpole.py --help`` lists its settings."""

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
    seed: int = 1
    """Seed of all random numbers of the run."""
    target_steps: int = 200_000
    """Environment steps to train for."""
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Units of the hidden layers of policy and value function."""
    lr: float = 3e-3
    """Learning rate at first; it falls to 0 over the run."""
    gamma: float = 0.99
    """Discount factor."""
    episodes_per_update: int = 4
    """Episodes between updates."""
    rollout_steps: int = 2_000
    """Environment steps after which there is an update in any case."""
    entropy_coef: float = 0.0
    """Weight of the entropy bonus."""
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
    envs = prl.VecEnv.create_factory(arguments.env)
    actor = prl.OnPolicyActor.create_factory(hidden_sizes=arguments.hidden_sizes)
    storage = prl.VanillaOnPolicyBuffer.create_factory(size=arguments.rollout_steps)
    algorithm = prl.REINFORCE.create_factory(
        lr=prl.LinearSchedule(arguments.lr, 0.0),
        gamma=arguments.gamma,
        episodes_per_update=arguments.episodes_per_update,
        entropy_coef=arguments.entropy_coef,
        test_every=arguments.test_every,
    )
    scheme = prl.Scheme(algorithm, actor, storage, envs, device=arguments.device, seed=arguments.seed)
    name = f"reinforce-{arguments.env}-{arguments.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
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
