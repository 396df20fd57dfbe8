"""Environments: vectors of them, their spaces."""

from pytorchrl.agent.envs.action_wrappers import BoundAction, FlattenAction, RoundAction
from pytorchrl.agent.envs.atari import Atari
from pytorchrl.agent.envs.atari_envs import atari_envs
from pytorchrl.agent.envs.bit_flipping import BitFlipping
from pytorchrl.agent.envs.checks import InvalidEnvironmentError
from pytorchrl.agent.envs.episode_recorder import EpisodeRecord
from pytorchrl.agent.envs.flat_observation import FlatObservation, Flattening
from pytorchrl.agent.envs.game_wrappers import EpisodicLife, FireOnReset, FlickerFrames, RandomizeAction
from pytorchrl.agent.envs.minatar import MinAtar
from pytorchrl.agent.envs.partly_observed import cartpole_without_velocities, pendulum_without_velocity
from pytorchrl.agent.envs.scale_reward import ScaleReward
from pytorchrl.agent.envs.select_observation import SelectObservation
from pytorchrl.agent.envs.spaces import UnsupportedSpaceError
from pytorchrl.agent.envs.sparse_maze import SparseMaze
from pytorchrl.agent.envs.terminal_reward import TerminalReward
from pytorchrl.agent.envs.vec_env import VecEnv
from pytorchrl.agent.envs.vector import Resumption, VecStep

__all__ = [
    "Atari",
    "BitFlipping",
    "BoundAction",
    "EpisodeRecord",
    "EpisodicLife",
    "FireOnReset",
    "FlatObservation",
    "FlattenAction",
    "Flattening",
    "FlickerFrames",
    "InvalidEnvironmentError",
    "MinAtar",
    "RandomizeAction",
    "Resumption",
    "RoundAction",
    "ScaleReward",
    "SelectObservation",
    "SparseMaze",
    "TerminalReward",
    "UnsupportedSpaceError",
    "VecEnv",
    "VecStep",
    "atari_envs",
    "cartpole_without_velocities",
    "pendulum_without_velocity",
]
