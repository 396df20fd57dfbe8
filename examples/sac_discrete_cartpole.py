"""Discrete SAC balances the pole of CartPole-v1: ``python examples/sac_discrete_cartpole.py --help`` lists settings."""

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
    target_steps: int = 40_000
    """Environment steps to train for."""
    hidden_sizes: tuple[int, ...] = (128, 128)
    """Units of the hidden layers of policy and critics."""
    lr_pi: float = 5e-4
    """Learning rate of the policy at the start; it falls to 0, so that the policy settles."""
    lr_q: float = 5e-4
    """Learning rate of the critics at the start; it falls to 0 too."""
    lr_alpha: float = 1e-3
    """Learning rate of the temperature."""
    initial_alpha: float = 0.2
    """Initial temperature: the reward of a nat of entropy."""
    target_entropy_share: float = 0.5
    """Target entropy at the start, as a share of that of uniform actions."""
    final_entropy_share: float = 0.01
    """The same at the end, so that the temperature does not outweigh small differences between actions."""
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
    polyak: float = 0.99
    """Share of the target critics' weights that is kept at each Polyak update."""
    test_every: int = 5_000
    """Environment steps between evaluations."""
    device: str = "cpu"
    """Device to compute on: cpu or cuda."""
    log_to: tuple[str, ...] = ()
    """Further writers of metrics: wandb, tensorboard."""
    log_dir: Path | None = None
    """The run folder; a new one under runs/ where left out."""


def train(arguments: Arguments) -> prl.Learner:
    """Compose and train the run, and return its learner."""
    envs = prl.VecEnv.create_factory(arguments.env, num_envs=1)
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=arguments.hidden_sizes)
    storage = prl.NStepReplayBuffer.create_factory(size=arguments.buffer_size, n_step=arguments.n_step)
    algorithm = prl.SACDiscrete.create_factory(
        lr_pi=prl.LinearSchedule(arguments.lr_pi, 0.0),
        lr_q=prl.LinearSchedule(arguments.lr_q, 0.0),
        lr_alpha=arguments.lr_alpha,
        initial_alpha=arguments.initial_alpha,
        target_entropy_share=prl.LinearSchedule(arguments.target_entropy_share, arguments.final_entropy_share),
        gamma=arguments.gamma,
        polyak=arguments.polyak,
        start_steps=arguments.start_steps,
        update_every=arguments.update_every,
        mini_batch_size=arguments.mini_batch_size,
        test_every=arguments.test_every,
    )
    scheme = prl.Scheme(algorithm, actor, storage, envs, device=arguments.device, seed=arguments.seed)
    name = f"sac-discrete-{arguments.env}-{arguments.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
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
