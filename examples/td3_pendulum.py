"""TD3 swings up Pendulum-v1: ``python examples/td3_pendulum.py --help`` lists what can be set."""

import time
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro

import pytorchrl as prl


@dataclass
class Arguments:
    """Hyper-parameters of the run."""

    env: str = "Pendulum-v1"
    """A gymnasium id with bounded continuous actions."""
    seed: int = 1
    """Seed of all random numbers of the run."""
    target_steps: int = 15_000
    """Environment steps to train for."""
    hidden_sizes: tuple[int, ...] = (128, 128)
    """Units of the hidden layers of policy and critics."""
    lr_pi: float = 1e-3
    """Learning rate of the policy at the start; it falls to 0, so that the policy settles."""
    lr_q: float = 1e-3
    """Learning rate of the critics at the start; it falls to 0 too."""
    gamma: float = 0.98
    """Discount factor."""
    buffer_size: int = 100_000
    """Transitions that the replay buffer keeps."""
    start_steps: int = 1_000
    """Random steps before learning starts."""
    update_every: int = 1
    """Environment steps between updates."""
    mini_batch_size: int = 128
    """Transitions in a minibatch."""
    num_critics: int = 2
    """Number of critics, of which the smallest value counts."""
    polyak: float = 0.99
    """Share of the target networks' weights that is kept at each Polyak update."""
    policy_delay: int = 2
    """Updates of the critics per update of the policy and the target networks."""
    exploration_noise: float = 0.3
    """Standard deviation of the noise on actions, which reach from -1 to 1."""
    target_noise: float = 0.2
    """Standard deviation of the noise on the target policy's actions."""
    target_noise_clip: float = 0.5
    """Clip range of the noise on the target policy's actions."""
    test_every: int = 1_000
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
    storage = prl.ReplayBuffer.create_factory(size=arguments.buffer_size)
    algorithm = prl.TD3.create_factory(
        lr_pi=prl.LinearSchedule(arguments.lr_pi, 0.0),
        lr_q=prl.LinearSchedule(arguments.lr_q, 0.0),
        gamma=arguments.gamma,
        num_critics=arguments.num_critics,
        polyak=arguments.polyak,
        policy_delay=arguments.policy_delay,
        exploration_noise=arguments.exploration_noise,
        target_noise=arguments.target_noise,
        target_noise_clip=arguments.target_noise_clip,
        start_steps=arguments.start_steps,
        update_every=arguments.update_every,
        mini_batch_size=arguments.mini_batch_size,
        test_every=arguments.test_every,
    )
    scheme = prl.Scheme(algorithm, actor, storage, envs, device=arguments.device, seed=arguments.seed)
    name = f"td3-{arguments.env}-{arguments.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
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
