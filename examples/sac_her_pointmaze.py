"""SAC finds its way through a maze with HER: ``python examples/sac_her_pointmaze.py --help`` lists what can be set.

Needs ``pip install gymnasium-robotics``.
"""

import time
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro

import pytorchrl as prl

MAZE = [
    [1, 1, 1, 1, 1],
    [1, "r", 0, 0, 1],
    [1, 1, 1, 0, 1],
    [1, "g", 0, 0, 1],
    [1, 1, 1, 1, 1],
]
"""The environment's own U, with all starts at one end (r) and all goals at the other (g): too far to find by chance."""


@dataclass
class Arguments:
    """Hyper-parameters of the run."""

    env: str = "PointMaze_UMaze-v3"
    """A gymnasium id with bounded continuous actions and goals, paid 1 at the goal and 0 elsewhere."""
    num_envs: int = 8
    """Environments stepped together."""
    seed: int = 1
    """Seed of all random numbers of the run."""
    target_steps: int = 50_000
    """Environment steps to train for."""
    hidden_sizes: tuple[int, ...] = (128, 128)
    """Units of the hidden layers of policy and critics."""
    lr_pi: float = 1e-3
    """Learning rate of the policy."""
    lr_q: float = 1e-3
    """Learning rate of the critics."""
    lr_alpha: float = 1e-3
    """Learning rate of the temperature."""
    initial_alpha: float = 0.1
    """Initial temperature of the entropy."""
    gamma: float = 0.98
    """Discount factor."""
    buffer_size: int = 50_000
    """Steps of each environment that the storage keeps."""
    her_ratio: float = 0.8
    """Share of a batch whose goals are relabelled; 0 is replay without hindsight."""
    strategy: str = "future"
    """How relabelled goals are chosen: future, final, episode, random."""
    n_step: int = 3
    """Rewards in an n-step return."""
    start_steps: int = 2_000
    """Random steps before learning starts."""
    update_every: int = 8
    """Environment steps between updates."""
    mini_batch_size: int = 256
    """Transitions in a minibatch."""
    polyak: float = 0.98
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
    envs = prl.VecEnv.create_factory(arguments.env, arguments.num_envs, env_kwargs={"maze_map": MAZE})
    # An evaluation's episode ends with reward 1 at its goal: the mean return is the success rate.
    test_envs = prl.VecEnv.create_factory(
        arguments.env, num_envs=20, env_kwargs={"maze_map": MAZE, "continuing_task": False}
    )
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=arguments.hidden_sizes)
    storage = prl.HERBuffer.create_factory(
        size=arguments.buffer_size,
        her_ratio=arguments.her_ratio,
        strategy=arguments.strategy,
        n_step=arguments.n_step,
    )
    algorithm = prl.SAC.create_factory(
        lr_pi=arguments.lr_pi,
        lr_q=arguments.lr_q,
        lr_alpha=arguments.lr_alpha,
        initial_alpha=arguments.initial_alpha,
        gamma=arguments.gamma,
        polyak=arguments.polyak,
        start_steps=arguments.start_steps,
        update_every=arguments.update_every,
        mini_batch_size=arguments.mini_batch_size,
        test_every=arguments.test_every,
        num_test_episodes=20,
    )
    scheme = prl.Scheme(algorithm, actor, storage, envs, test_envs, device=arguments.device, seed=arguments.seed)
    name = f"sac-her-{Path(arguments.env).name}-{arguments.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
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
