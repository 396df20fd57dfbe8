"""Environments: vector environments, wrappers, games and small problems."""

from pytorchrl.agent.envs.checks import InvalidEnvironmentError
from pytorchrl.agent.envs.copies.episode_recorder import EpisodeRecord
from pytorchrl.agent.envs.games.atari import Atari
from pytorchrl.agent.envs.games.atari_envs import atari_envs
from pytorchrl.agent.envs.games.minatar import MinAtar
from pytorchrl.agent.envs.pixel_envs import pixel_envs, pixel_pendulum
from pytorchrl.agent.envs.problems.bit_flipping import BitFlipping
from pytorchrl.agent.envs.problems.partly_observed import cartpole_without_velocities, pendulum_without_velocity
from pytorchrl.agent.envs.problems.sparse_maze import SparseMaze
from pytorchrl.agent.envs.spaces import UnsupportedSpaceError
from pytorchrl.agent.envs.vec_env import VecEnv
from pytorchrl.agent.envs.vector import Resumption, VecStep
from pytorchrl.agent.envs.wrappers.action_wrappers import BoundAction, FlattenAction, RepeatAction, RoundAction
from pytorchrl.agent.envs.wrappers.flat_observation import FlatObservation, Flattening
from pytorchrl.agent.envs.wrappers.game_wrappers import EpisodicLife, FireOnReset, FlickerFrames, RandomizeAction
from pytorchrl.agent.envs.wrappers.join_actions import JoinActions, JoinedActions
from pytorchrl.agent.envs.wrappers.observation_wrappers import ObserveActionMask, ObservePixels, SelectObservation
from pytorchrl.agent.envs.wrappers.reward_wrappers import ScaleReward, TerminalReward

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
    "JoinActions",
    "JoinedActions",
    "MinAtar",
    "ObserveActionMask",
    "ObservePixels",
    "RandomizeAction",
    "RepeatAction",
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
    "pixel_envs",
    "pixel_pendulum",
]
