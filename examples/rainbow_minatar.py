"""Rainbow plays MinAtar's Breakout: ``python examples/rainbow_minatar.py --help`` lists what can be set."""

import time
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro

import pytorchrl as prl


@dataclass
class Arguments:
    """Hyper-parameters of the run."""

    env: str = "pytorchrl/MinAtar-Breakout-v0"
    """A gymnasium id with discrete actions; MinAtar has Asterix, Freeway, Seaquest and SpaceInvaders too."""
    seed: int = 1
    """Seed of all random numbers of the run."""
    target_steps: int = 300_000
    """Environment steps to train for."""
    num_envs: int = 1
    """Copies of the game."""
    buffer_size: int = 100_000
    """Transitions that the replay buffer keeps."""
    lr: float = 2.5e-4
    """Learning rate of Adam."""
    gamma: float = 0.99
    """Discount factor."""
    n_step: int = 3
    """Rewards in an n-step return."""
    start_steps: int = 1_000
    """Steps before learning starts."""
    update_every: int = 4
    """Environment steps between updates."""
    mini_batch_size: int = 32
    """Transitions in a minibatch."""
    test_every: int = 25_000
    """Environment steps between evaluations."""
    device: str = "cpu"
    """Device to compute on: cpu or cuda."""
    checkpoint_every: int = 10_000
    """Environment steps between checkpoints; a killed run resumes from the last one."""
    log_to: tuple[str, ...] = ()
    """Further writers of metrics: wandb, tensorboard."""
    log_dir: Path | None = None
    """The run folder; a new one under runs/ where left out."""


def train(arguments: Arguments) -> prl.Learner:
    """Compose and train the run, and return its learner."""
    name = f"rainbow-{arguments.env.replace('/', '-')}-{arguments.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    log_dir = arguments.log_dir or Path("runs") / name
    preset = prl.Rainbow.small(arguments.buffer_size, arguments.num_envs)
    changed = {
        "lr": arguments.lr,
        "gamma": arguments.gamma,
        "start_steps": arguments.start_steps,
        "update_every": arguments.update_every,
        "mini_batch_size": arguments.mini_batch_size,
        "test_every": arguments.test_every,
    }
    # On disk, so that checkpoints hold no copy of the transitions.
    kept = {"n_step": arguments.n_step, "directory": log_dir / "replay"}
    scheme = prl.Scheme(
        algo_factory=prl.Rainbow.create_factory(**preset["algo_factory"].hyper_parameters | changed),
        actor_factory=preset["actor_factory"],
        storage_factory=prl.PERBuffer.create_factory(**preset["storage_factory"].hyper_parameters | kept),
        train_envs_factory=prl.VecEnv.create_factory(arguments.env, arguments.num_envs),
        device=arguments.device,
        seed=arguments.seed,
    )
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
