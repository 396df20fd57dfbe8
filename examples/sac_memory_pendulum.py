"""SAC with a memory swings up a pendulum without seeing how fast it turns.

``python examples/sac_memory_pendulum.py --help`` lists what can be set.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
import tyro

import pytorchrl as prl


@dataclass
class Arguments:
    """Hyper-parameters of the run."""

    env: str = "pytorchrl/PendulumWithoutVelocity-v0"
    """A gymnasium id with bounded continuous actions."""
    seed: int = 1
    """Seed of all random numbers of the run."""
    target_steps: int = 15_000
    """Environment steps to train for."""
    hidden_sizes: tuple[int, ...] = (64,)
    """Units of the hidden layers before the recurrent layers."""
    memory: Literal["gru", "lstm"] | None = "gru"
    """Recurrent layers of policy and critics; None for no memory."""
    memory_size: int = 64
    """Units of each recurrent layer."""
    sequence_length: int = 8
    """Steps of a training sequence."""
    burn_in: int = 4
    """Steps before each sequence that initialise the recurrent states."""
    lr_pi: float = 1e-3
    """Learning rate of the policy at the start; it falls to 0, so that the policy settles."""
    lr_q: float = 1e-3
    """Learning rate of the critics at the start; it falls to 0 too."""
    lr_alpha: float = 1e-3
    """Learning rate of the temperature."""
    initial_alpha: float = 0.02
    """Initial temperature of the entropy."""
    gamma: float = 0.98
    """Discount factor."""
    reward_scale: float = 0.02
    """Factor of rewards in training, so that values are learnt sooner."""
    buffer_size: int = 100_000
    """Transitions that the replay buffer keeps."""
    start_steps: int = 1_000
    """Random steps before learning starts."""
    update_every: int = 1
    """Environment steps between updates."""
    mini_batch_size: int = 24
    """Sequences in a minibatch (transitions, without a memory)."""
    polyak: float = 0.99
    """Share of the target critics' weights that is kept at each Polyak update."""
    num_critics: int = 2
    """Number of critics, of which the smallest value counts."""
    test_every: int = 2_500
    """Environment steps between evaluations."""
    device: str = "cpu"
    """Device to compute on: cpu or cuda."""
    log_to: tuple[str, ...] = ()
    """Further writers of metrics: wandb, tensorboard."""
    log_dir: Path | None = None
    """The run folder; a new one under runs/ where left out."""


def train(arguments: Arguments) -> prl.Learner:
    """Compose and train the run, and return its learner."""
    scaled = ("ScaleReward", {"factor": arguments.reward_scale})
    envs = prl.VecEnv.create_factory(arguments.env, num_envs=1, wrappers=[scaled])
    test_envs = prl.VecEnv.create_factory(arguments.env, num_envs=10)
    actor = prl.OffPolicyActor.create_factory(
        hidden_sizes=arguments.hidden_sizes, memory=arguments.memory, memory_size=arguments.memory_size
    )
    sequences = prl.Sequences(arguments.sequence_length, burn_in=arguments.burn_in)
    storage = prl.ReplayBuffer.create_factory(
        size=arguments.buffer_size, sequences=sequences if arguments.memory else None
    )
    algorithm = prl.SAC.create_factory(
        lr_pi=prl.LinearSchedule(arguments.lr_pi, 0.0),
        lr_q=prl.LinearSchedule(arguments.lr_q, 0.0),
        lr_alpha=arguments.lr_alpha,
        initial_alpha=arguments.initial_alpha,
        gamma=arguments.gamma,
        polyak=arguments.polyak,
        num_critics=arguments.num_critics,
        start_steps=arguments.start_steps,
        update_every=arguments.update_every,
        mini_batch_size=arguments.mini_batch_size,
        test_every=arguments.test_every,
    )
    scheme = prl.Scheme(algorithm, actor, storage, envs, test_envs, device=arguments.device, seed=arguments.seed)
    name = f"sac-memory-{arguments.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
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
