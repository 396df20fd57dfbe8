"""DQN finds patterns of bits with HER: ``python examples/dqn_her_bitflipping.py --help`` lists what can be set."""

import time
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro

import pytorchrl as prl


@dataclass
class Arguments:
    """Hyper-parameters of the run."""

    env: str = "pytorchrl/BitFlipping-v0"
    """A gymnasium id with discrete actions and goals. Of 15 bits, -10.5 is the best mean return, -15 the worst."""
    num_envs: int = 4
    """Environments stepped together."""
    seed: int = 1
    """Seed of all random numbers of the run."""
    target_steps: int = 20_000
    """Environment steps to train for."""
    hidden_sizes: tuple[int, ...] = (256,)
    """Units of the Q-function's hidden layers."""
    lr: float = 1e-3
    """Learning rate."""
    gamma: float = 0.98
    """Discount factor."""
    buffer_size: int = 20_000
    """Steps of each environment that the storage keeps."""
    her_ratio: float = 0.8
    """Share of a batch whose goals are relabelled; 0 is replay without hindsight."""
    strategy: str = "future"
    """How relabelled goals are chosen: future, final, episode, random."""
    n_step: int = 1
    """Rewards in an n-step return."""
    update_every: int = 4
    """Environment steps between updates."""
    mini_batch_size: int = 128
    """Transitions in a minibatch."""
    polyak: float = 0.95
    """Share of the target network's weights that is kept at each Polyak update."""
    test_every: int = 2_000
    """Environment steps between evaluations."""
    device: str = "cpu"
    """Device to compute on: cpu or cuda."""
    log_to: tuple[str, ...] = ()
    """Further writers of metrics: wandb, tensorboard."""
    log_dir: Path | None = None
    """The run folder; a new one under runs/ where left out."""


def train(arguments: Arguments) -> prl.Learner:
    """Compose and train the run, and return its learner."""
    envs = prl.VecEnv.create_factory(arguments.env, arguments.num_envs)
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=arguments.hidden_sizes)
    storage = prl.HERBuffer.create_factory(
        size=arguments.buffer_size,
        her_ratio=arguments.her_ratio,
        strategy=arguments.strategy,
        n_step=arguments.n_step,
    )
    algorithm = prl.DQN.create_factory(
        lr=arguments.lr,
        gamma=arguments.gamma,
        epsilon=prl.LinearSchedule(0.3, 0.02, fraction=0.5),
        start_steps=500,
        update_every=arguments.update_every,
        mini_batch_size=arguments.mini_batch_size,
        polyak=arguments.polyak,
        test_every=arguments.test_every,
        num_test_episodes=40,
    )
    scheme = prl.Scheme(algorithm, actor, storage, envs, device=arguments.device, seed=arguments.seed)
    name = f"dqn-her-{Path(arguments.env).name}-{arguments.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
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
