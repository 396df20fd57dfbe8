"""Algorithms: how a batch becomes an update, and how to act."""

from pytorchrl.agent.algorithms.actor_critic.sac import SAC
from pytorchrl.agent.algorithms.algorithm import ActingStep, Algorithm, Losses, Result
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.policy_gradient.policy_gradient import PolicyGradient
from pytorchrl.agent.algorithms.policy_gradient.ppo import PPO
from pytorchrl.agent.algorithms.value_based.dqn import DQN

__all__ = ["DQN", "PPO", "SAC", "ActingStep", "Algorithm", "Losses", "OffPolicyAlgorithm", "PolicyGradient", "Result"]
