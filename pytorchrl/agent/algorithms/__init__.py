"""Algorithms: one file each."""

from pytorchrl.agent.algorithms.algorithm import STOP_UPDATES, ActingStep, Algorithm
from pytorchrl.agent.algorithms.dqn import DQN
from pytorchrl.agent.algorithms.ppo import PPO
from pytorchrl.agent.algorithms.sac import SAC

__all__ = ["DQN", "PPO", "SAC", "STOP_UPDATES", "ActingStep", "Algorithm"]
