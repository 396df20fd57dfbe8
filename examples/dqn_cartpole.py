"""DQN balances the pole of CartPole-v1: ``python examples/dqn_cartpole.py --help`` lists what can be set."""

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
    """A gymnasium id with discrete actions."""
    seed: int = 1
    """Seed of all random numbers of the run."""
    target_steps: int = 60_000
    """Environment steps to train for."""
    hidden_sizes: tuple[int, ...] = (128, 128)
    """Units of the Q-function's hidden layers."""
    lr: float = 1e-3
    """Learning rate at the start; it falls to 0, so that the policy settles."""
    gamma: float = 0.99
    """Discount factor."""
    buffer_size: int = 50_000
    """Transitions that the replay buffer keeps."""
    n_step: int = 3
    """Rewards in an n-step return."""
    start_steps: int = 1_000
    """Random steps before learning starts."""
    update_every: int = 2
    """Environment steps between updates."""
    mini_batch_size: int = 64
    """Transitions in a minibatch."""
    exploration_fraction: float = 0.2
    """Share of the run in which epsilon falls from 1 to 0.05."""
    polyak: float = 0.995
    """Share of the target network's weights that is kept at each Polyak update."""
    test_every: int = 5_000
    """Environment steps between evaluations."""
    device: str = "cpu"
    """Device to compute on: cpu or cuda."""
    checkpoint_every: int = 5_000
    """Environment steps between checkpoints; a killed run resumes from the last one."""
    log_to: tuple[str, ...] = ()
    """Further writers of metrics: wandb, tensorboard."""
    log_dir: Path | None = None
    """The run folder; a new one under runs/ where left out."""


def train(arguments: Arguments) -> prl.Learner:
    """Compose and train the run, and return its learner."""
    name = f"dqn-{arguments.env}-{arguments.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    log_dir = arguments.log_dir or Path("runs") / name
    envs = prl.VecEnv.create_factory(arguments.env, num_envs=1)
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=arguments.hidden_sizes)
    # On disk, so that checkpoints hold no copy of the transitions.
    storage = prl.NStepReplayBuffer.create_factory(
        size=arguments.buffer_size, n_step=arguments.n_step, directory=log_dir / "replay"
    )
    algorithm = prl.DQN.create_factory(
        lr=prl.LinearSchedule(arguments.lr, 0.0),
        gamma=arguments.gamma,
        epsilon=prl.LinearSchedule(1.0, 0.05, fraction=arguments.exploration_fraction),
        start_steps=arguments.start_steps,
        update_every=arguments.update_every,
        mini_batch_size=arguments.mini_batch_size,
        double=True,
        polyak=arguments.polyak,
        target_update_interval=1,
        test_every=arguments.test_every,
    )
    scheme = prl.Scheme(algorithm, actor, storage, envs, device=arguments.device, seed=arguments.seed)
    learner = prl.Learner(scheme, arguments.target_steps, log_dir, log_to=arguments.log_to)
    learner.run(checkpoint_every=arguments.checkpoint_every)
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
