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
    """Seed of all random numbers of the run."""
    target_steps: int = 100_000
    """Environment steps to train for."""
    hidden_sizes: tuple[int, ...] = (64,)
    """Units of the hidden layers before the recurrent layers."""
    activation: Literal["relu", "tanh"] = "relu"
    """Activation function after each hidden layer."""
    initialisation: Literal["orthogonal", "uniform"] = "uniform"
    """Initialisation of the hidden layers' weights."""
    memory: Literal["gru", "lstm"] | None = "lstm"
    """Recurrent layers of policy and value function; None for no memory."""
    memory_size: int = 64
    """Units of each recurrent layer."""
    lr: float = 1e-3
    """Learning rate at first; it falls to 0 over the run."""
    clip_param: float = 0.2
    """Clip range of the probability ratio."""
    gamma: float = 0.98
    """Discount factor."""
    reward_scale: float = 0.02
    """Factor of rewards in training; with 1 - gamma, values lie below 1."""
    gae_lambda: float = 0.9
    """Lambda of GAE: 0 trusts the value function, 1 the rewards."""
    rollout_steps: int = 64
    """Steps of each environment between updates."""
    sequence_length: int = 32
    """Steps of a training sequence; divides ``rollout_steps``."""
    num_epochs: int = 10
    """Passes over a rollout in an update."""
    num_mini_batch: int = 2
    """Minibatches that a rollout is divided into."""
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
    if learner.was_interrupted:
        raise SystemExit(130)  # as commands do after Ctrl-C or SIGTERM: a job scheduler may run it again
