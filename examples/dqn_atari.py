"""DQN plays Atari from pixels, as in Nature: ``python examples/dqn_atari.py --help`` lists what can be set."""

import time
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro

import pytorchrl as prl


@dataclass
class Arguments:
    """Hyper-parameters of the run; the paper's are 50 million steps, 1,000,000 transitions and 50,000 random steps."""

    env: str = "PongNoFrameskip-v4"
    """A gymnasium id of Atari; actions of ids like ALE/Pong-v5 are sticky, those of PongNoFrameskip-v4 are not."""
    seed: int = 1
    """Seed of all random numbers of the run."""
    target_steps: int = 200_000
    """Environment steps to train for, of 4 frames each."""
    num_envs: int = 1
    """Copies of the game."""
    buffer_size: int = 100_000
    """Transitions that the replay buffer keeps, 7 kB each."""
    lr: float = 2.5e-4
    """Learning rate of the paper's RMSprop."""
    gamma: float = 0.99
    """Discount factor."""
    exploration_steps: int = 100_000
    """Steps over which epsilon falls from 1 to 0.1; a million in the paper."""
    start_steps: int = 10_000
    """Random steps before learning starts."""
    update_every: int = 4
    """Environment steps between updates."""
    mini_batch_size: int = 32
    """Transitions in a minibatch."""
    target_update_interval: int = 1_000
    """Updates between copies of the target network; 10,000 in the paper."""
    test_every: int = 50_000
    """Environment steps between evaluations, of whole games with their own rewards."""
    test_epsilon: float = 0.05
    """Epsilon in evaluations, as in the paper."""
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
    name = f"dqn-{arguments.env.replace('/', '-')}-{arguments.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    log_dir = arguments.log_dir or Path("runs") / name
    preset = prl.DQN.nature(arguments.buffer_size, arguments.num_envs)
    shorter = {
        "lr": arguments.lr,
        "gamma": arguments.gamma,
        "epsilon": prl.PiecewiseSchedule(((0, 1.0), (arguments.exploration_steps, 0.1)), positions="steps"),
        "start_steps": arguments.start_steps,
        "update_every": arguments.update_every,
        "mini_batch_size": arguments.mini_batch_size,
        "target_update_interval": arguments.target_update_interval,
        "test_every": arguments.test_every,
    }
    random_actions = ("RandomizeAction", {"probability": arguments.test_epsilon})
    scheme = prl.Scheme(
        algo_factory=prl.DQN.create_factory(**preset["algo_factory"].hyper_parameters | shorter),
        actor_factory=preset["actor_factory"],
        # On disk, so that checkpoints hold no copy of the transitions.
        storage_factory=prl.ReplayBuffer.create_factory(
            arguments.buffer_size // arguments.num_envs, directory=log_dir / "replay"
        ),
        train_envs_factory=prl.atari_envs(arguments.env, arguments.num_envs),
        test_envs_factory=prl.atari_envs(arguments.env, training=False, wrappers=[random_actions]),
        device=arguments.device,
        seed=arguments.seed,
    )
    learner = prl.Learner(scheme, arguments.target_steps, log_dir, log_to=arguments.log_to)
    learner.run(checkpoint_every=arguments.checkpoint_every)
    learner.close()
    return learner


if __name__ == "__main__":
    torch.set_num_threads(1)  # leaves the other cores to other runs
    learner = train(tyro.cli(Arguments, description=__doc__))
    learner.print_info()
    print(f"Learning curve: {learner.curve_file}")
    print(f"Run folder:     {learner.log_dir}")
    print(f"Train further:  {learner.resume_command} --target-steps {2 * learner.target_steps}")
    if learner.was_interrupted:
        raise SystemExit(130)  # as commands do after Ctrl-C or SIGTERM: a job scheduler may run it again
