"""PPO with a memory balances CartPole's pole without seeing velocities.

``python examples/ppo_memory_cartpole.py --help`` lists what can be set.
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

    env: str = "pytorchrl/CartPoleWithoutVelocities-v0"
    """A gymnasium id."""
    num_envs: int = 16
    """Environments stepped together."""
    seed: int = 1
    """All randomness of the run follows from it."""
    target_steps: int = 100_000
    """Environment steps to train for."""
    hidden_sizes: tuple[int, ...] = (64,)
    """Units of the hidden layers before the memories."""
    activation: Literal["relu", "tanh"] = "relu"
    """What follows each of them."""
    initialisation: Literal["orthogonal", "uniform"] = "uniform"
    """Of their weights."""
    memory: Literal["gru", "lstm"] | None = "lstm"
    """What policy and value function remember with; None for nothing."""
    memory_size: int = 64
    """Features that a memory makes."""
    lr: float = 1e-3
    """Learning rate at first; it falls to 0 over the run."""
    clip_param: float = 0.2
    """How far a probability ratio may leave 1."""
    gamma: float = 0.98
    """Discount factor."""
    reward_scale: float = 0.02
    """What rewards are multiplied by: with 1 - gamma, values lie below 1."""
    gae_lambda: float = 0.9
    """0 trusts the value function, 1 the rewards."""
    rollout_steps: int = 64
    """Steps of each environment between updates."""
    sequence_length: int = 32
    """Steps of the sequences that are learnt from; divides ``rollout_steps``."""
    num_epochs: int = 10
    """Times that a rollout is learnt from."""
    num_mini_batch: int = 2
    """Batches that a rollout is divided into."""
    entropy_coef: float = 0.0
    """Weight of the policy's entropy."""
    test_every: int = 10_000
    """Environment steps between evaluations."""
    device: str = "cpu"
    """Where to compute."""
    log_to: tuple[str, ...] = ()
    """Further places for metrics: wandb, tensorboard."""
    log_dir: Path | None = None
    """The run folder; a new one under runs/ where left out."""


def train(arguments: Arguments) -> prl.Learner:
    """Compose, train, and return the learner that did."""
    scaled = ("ScaleReward", {"factor": arguments.reward_scale})
    envs = prl.VecEnv.create_factory(arguments.env, num_envs=arguments.num_envs, wrappers=[scaled])
    test_envs = prl.VecEnv.create_factory(arguments.env, num_envs=10)
    actor = prl.OnPolicyActor.create_factory(
        hidden_sizes=arguments.hidden_sizes,
        activation=arguments.activation,
        initialisation=arguments.initialisation,
        memory=arguments.memory,
        memory_size=arguments.memory_size,
    )
    storage = prl.GAEBuffer.create_factory(
        size=arguments.rollout_steps, gae_lambda=arguments.gae_lambda, sequence_length=arguments.sequence_length
    )
    algorithm = prl.PPO.create_factory(
        lr=prl.LinearSchedule(arguments.lr, 0.0),
        clip_param=arguments.clip_param,
        gamma=arguments.gamma,
        num_epochs=arguments.num_epochs,
        num_mini_batch=arguments.num_mini_batch,
        entropy_coef=arguments.entropy_coef,
        test_every=arguments.test_every,
    )
    scheme = prl.Scheme(algorithm, actor, storage, envs, test_envs, device=arguments.device, seed=arguments.seed)
    name = f"ppo-memory-{arguments.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
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
