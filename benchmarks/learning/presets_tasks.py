"""Presets that ``presets.py`` measures, from the shortest task to the longest, with published returns."""

from collections.abc import Sequence
from dataclasses import dataclass

ZOO = "rl-baselines3-zoo"
"""The zoo's returns of single runs, in its benchmark.md."""
TD3_PAPER = "arXiv 1802.09477, table 1"
OPTIMAL = "the largest return"
MUJOCO_VERSIONS = {ZOO: "v3", TD3_PAPER: "v1"}
"""Versions of MuJoCo's environments that published returns are of; the presets are for versions 5."""


@dataclass(frozen=True)
class Published:
    """A published return, for a comparison."""

    mean_return: float
    steps: int | None
    """Environment steps of its training; None where it is the largest return that there is."""
    source: str


@dataclass(frozen=True)
class PresetTask:
    """A preset of `pytorchrl/commands/presets`, and how it is measured."""

    name: str
    """As in the zoo: ppo-cartpole."""
    algorithm: str
    env: str
    published: Published | None = None
    seeds: tuple[int, ...] = (1, 2, 3)
    package: str | None = None
    """The package that the environment needs beside gymnasium."""


_ONE = (1,)
_BOX2D, MUJOCO, _MINATAR, _ATARI, _ROBOTICS = "Box2D", "mujoco", "minatar", "ale_py", "gymnasium_robotics"
_DER_PONG = Published(-19.3, 100_000, "van Hasselt et al., arXiv 1906.05243")


def _zoo(mean_return: float, steps: int) -> Published:
    return Published(mean_return, steps, ZOO)


def _of_td3(mean_return: float) -> Published:
    return Published(mean_return, 1_000_000, TD3_PAPER)


_SHORT = [
    PresetTask("ppo-cartpole", "PPO", "CartPole-v1", _zoo(500.0, 100_000)),
    PresetTask("ppo-mountaincar-continuous", "PPO", "MountainCarContinuous-v0", _zoo(88.3, 20_000)),
    PresetTask("ppo-pendulum", "PPO", "Pendulum-v1", _zoo(-172.2, 100_000)),
    PresetTask("dqn-cartpole", "DQN", "CartPole-v1", _zoo(500.0, 50_000)),
    PresetTask("sac-pendulum", "SAC", "Pendulum-v1", _zoo(-157.0, 20_000)),
    PresetTask("ppo-acrobot", "PPO", "Acrobot-v1", _zoo(-73.5, 1_000_000)),
    PresetTask("dqn-mountaincar", "DQN", "MountainCar-v0", _zoo(-100.8, 120_000)),
    PresetTask("td3-pendulum", "TD3", "Pendulum-v1", _zoo(-151.9, 20_000)),
    PresetTask("qrdqn-cartpole", "QRDQN", "CartPole-v1", _zoo(500.0, 50_000)),
    PresetTask("dqn-her-bitflipping", "DQN", "pytorchrl/BitFlipping-v0", Published(-10.5, None, OPTIMAL)),
    PresetTask("dqn-acrobot", "DQN", "Acrobot-v1", _zoo(-76.6, 100_000)),
    PresetTask("ppo-mountaincar", "PPO", "MountainCar-v0", _zoo(-110.4, 1_000_000)),
    PresetTask("sac-mountaincar-continuous", "SAC", "MountainCarContinuous-v0", _zoo(94.7, 50_000)),
    PresetTask("tqc-pendulum", "TQC", "Pendulum-v1"),
    PresetTask("drqv2-pixel-pendulum", "DrQV2", "pytorchrl/PixelPendulum-v0"),
    PresetTask("sac-inverted-pendulum", "SAC", "InvertedPendulum-v5", _of_td3(1_000.0), package=MUJOCO),
    PresetTask("ppo-inverted-pendulum", "PPO", "InvertedPendulum-v5", _of_td3(1_000.0), package=MUJOCO),
    PresetTask("sac-her-pointmaze", "SAC", "PointMaze_UMaze-v3", Published(1.0, None, OPTIMAL), package=_ROBOTICS),
    PresetTask("qrdqn-mountaincar", "QRDQN", "MountainCar-v0", _zoo(-106.0, 120_000)),
    PresetTask("qrdqn-acrobot", "QRDQN", "Acrobot-v1", _zoo(-69.1, 100_000)),
    PresetTask("rainbow-cartpole", "Rainbow", "CartPole-v1"),
    PresetTask("spr-cartpole", "SPR", "CartPole-v1"),
    PresetTask("ppo-lunarlander", "PPO", "LunarLander-v3", _zoo(242.1, 1_000_000), package=_BOX2D),
    PresetTask("dqn-lunarlander", "DQN", "LunarLander-v3", _zoo(154.4, 100_000), package=_BOX2D),
    PresetTask("ppo-lunarlander-continuous", "PPO", "LunarLanderContinuous-v3", _zoo(270.9, 1_000_000), package=_BOX2D),
    PresetTask("sac-reacher", "SAC", "Reacher-v5", _of_td3(-4.44), package=MUJOCO),
    PresetTask("sac-inverted-double-pendulum", "SAC", "InvertedDoublePendulum-v5", _of_td3(8_487.2), package=MUJOCO),
    PresetTask("ppo-inverted-double-pendulum", "PPO", "InvertedDoublePendulum-v5", _of_td3(8_977.9), package=MUJOCO),
    PresetTask("ppo-reacher", "PPO", "Reacher-v5", _of_td3(-6.18), package=MUJOCO),
    PresetTask("ppo-swimmer", "PPO", "Swimmer-v5", _zoo(281.6, 1_000_000), package=MUJOCO),
    PresetTask("td3-mountaincar-continuous", "TD3", "MountainCarContinuous-v0", _zoo(93.5, 300_000)),
    PresetTask("ppo-hopper", "PPO", "Hopper-v5", _zoo(2_410.4, 1_000_000), package=MUJOCO),
    PresetTask("ppo-walker2d", "PPO", "Walker2d-v5", _zoo(3_478.8, 1_000_000), package=MUJOCO),
    PresetTask("ppo-halfcheetah", "PPO", "HalfCheetah-v5", _zoo(5_819.1, 1_000_000), package=MUJOCO),
    PresetTask("ppo-ant", "PPO", "Ant-v5", _zoo(1_327.2, 1_000_000), package=MUJOCO),
]
_GAMES = ("Breakout", "Asterix", "Freeway", "Seaquest", "SpaceInvaders")
_MINATAR_GAMES = [
    PresetTask(
        f"{algorithm.lower()}-minatar-{game.lower()}", algorithm, f"pytorchrl/MinAtar-{game}-v0", None, _ONE, _MINATAR
    )
    for algorithm in ("DQN", "PPO", "Rainbow")
    for game in _GAMES
]
_HOURS = [
    PresetTask("ppo-bipedalwalker", "PPO", "BipedalWalker-v3", _zoo(213.3, 5_000_000), _ONE, _BOX2D),
    PresetTask("sac-lunarlander-continuous", "SAC", "LunarLanderContinuous-v3", _zoo(260.4, 500_000), _ONE, _BOX2D),
    PresetTask("sac-bipedalwalker", "SAC", "BipedalWalker-v3", _zoo(297.7, 500_000), _ONE, _BOX2D),
    PresetTask("tqc-bipedalwalker", "TQC", "BipedalWalker-v3", _zoo(329.8, 500_000), _ONE, _BOX2D),
    PresetTask("sac-hopper", "SAC", "Hopper-v5", _zoo(2_325.5, 1_000_000), _ONE, MUJOCO),
    PresetTask("sac-halfcheetah", "SAC", "HalfCheetah-v5", _zoo(9_535.5, 1_000_000), _ONE, MUJOCO),
    PresetTask("sac-walker2d", "SAC", "Walker2d-v5", _zoo(3_863.2, 1_000_000), _ONE, MUJOCO),
    PresetTask("sac-ant", "SAC", "Ant-v5", _zoo(4_615.8, 1_000_000), _ONE, MUJOCO),
    PresetTask("sac-swimmer", "SAC", "Swimmer-v5", _zoo(345.6, 1_000_000), _ONE, MUJOCO),
    PresetTask("tqc-hopper", "TQC", "Hopper-v5", _zoo(3_754.2, 1_000_000), _ONE, MUJOCO),
    PresetTask("tqc-halfcheetah", "TQC", "HalfCheetah-v5", _zoo(12_089.9, 1_000_000), _ONE, MUJOCO),
    PresetTask("tqc-walker2d", "TQC", "Walker2d-v5", _zoo(4_380.7, 1_000_000), _ONE, MUJOCO),
    PresetTask("tqc-ant", "TQC", "Ant-v5", _zoo(3_339.4, 1_000_000), _ONE, MUJOCO),
    PresetTask("rainbow-pong", "Rainbow", "PongNoFrameskip-v4", _DER_PONG, _ONE, _ATARI),
    PresetTask("spr-pong", "SPR", "PongNoFrameskip-v4", None, _ONE, _ATARI),
    PresetTask("bbf-pong", "BBF", "PongNoFrameskip-v4", None, _ONE, _ATARI),
    PresetTask("ppo-breakout", "PPO", "BreakoutNoFrameskip-v4", _zoo(398.0, 10_000_000), _ONE, _ATARI),
    PresetTask("ppo-pong", "PPO", "PongNoFrameskip-v4", _zoo(21.0, 10_000_000), _ONE, _ATARI),
    PresetTask("dqn-breakout", "DQN", "BreakoutNoFrameskip-v4", _zoo(358.3, 10_000_000), _ONE, _ATARI),
    PresetTask("dqn-pong", "DQN", "PongNoFrameskip-v4", _zoo(20.6, 10_000_000), _ONE, _ATARI),
]

PRESETS: Sequence[PresetTask] = (*_SHORT, *_MINATAR_GAMES, *_HOURS)
