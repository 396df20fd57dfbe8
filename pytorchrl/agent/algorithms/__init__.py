"""Reinforcement and imitation learning algorithms, and the base classes for new ones."""

from pytorchrl.agent.algorithms.actor_critic.acer import ACER
from pytorchrl.agent.algorithms.actor_critic.acer_continuous import ACERContinuous
from pytorchrl.agent.algorithms.actor_critic.crossq import CrossQ
from pytorchrl.agent.algorithms.actor_critic.ddpg import DDPG
from pytorchrl.agent.algorithms.actor_critic.hyar import HyAR
from pytorchrl.agent.algorithms.actor_critic.mmesac import DEMMESAC, MMESAC
from pytorchrl.agent.algorithms.actor_critic.mpo import MPO
from pytorchrl.agent.algorithms.actor_critic.mpo_discrete import MPODiscrete
from pytorchrl.agent.algorithms.actor_critic.pcl import PCL, UnifiedPCL
from pytorchrl.agent.algorithms.actor_critic.quantile_sac import QRSAC, TQC
from pytorchrl.agent.algorithms.actor_critic.redq import REDQ, DroQ
from pytorchrl.agent.algorithms.actor_critic.sac import SAC
from pytorchrl.agent.algorithms.actor_critic.sac_decomposed import SACDecomposed
from pytorchrl.agent.algorithms.actor_critic.sac_discrete import SACDiscrete
from pytorchrl.agent.algorithms.actor_critic.sac_with_value import SACWithValue
from pytorchrl.agent.algorithms.actor_critic.svg0 import PGT, SVG0
from pytorchrl.agent.algorithms.actor_critic.td3 import TD3
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.algorithms.imitation.adversarial_reward import AdversarialClassifier, AdversarialReward
from pytorchrl.agent.algorithms.imitation.airl import AIRL, AIRLReward
from pytorchrl.agent.algorithms.imitation.amp import AMP, AMPReward
from pytorchrl.agent.algorithms.imitation.behaviour_cloning import BehaviourCloning, DAgger
from pytorchrl.agent.algorithms.imitation.gail import GAIL, GAILReward
from pytorchrl.agent.algorithms.imitation.ppod import PPOD
from pytorchrl.agent.algorithms.model_based.mb_mpc import MBMPC, PDDM, PETS
from pytorchrl.agent.algorithms.model_based.mbpo import MBPO
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.offline.awac import AWAC
from pytorchrl.agent.algorithms.offline.bcq import BCQ
from pytorchrl.agent.algorithms.offline.bear import BEAR
from pytorchrl.agent.algorithms.offline.cal_ql import CalQL
from pytorchrl.agent.algorithms.offline.cql import CQL
from pytorchrl.agent.algorithms.offline.crr import CRR
from pytorchrl.agent.algorithms.offline.decision_transformer import DecisionTransformer
from pytorchrl.agent.algorithms.offline.discrete_offline import DiscreteBCQ, DiscreteCQL
from pytorchrl.agent.algorithms.offline.edac import EDAC
from pytorchrl.agent.algorithms.offline.iql import IQL, XQL
from pytorchrl.agent.algorithms.offline.td3_bc import TD3BC
from pytorchrl.agent.algorithms.on_policy import PolicyGradient
from pytorchrl.agent.algorithms.policy_gradient.a2c import A2C, IMPALA
from pytorchrl.agent.algorithms.policy_gradient.option_critic import OptionCritic
from pytorchrl.agent.algorithms.policy_gradient.ppo import PPO
from pytorchrl.agent.algorithms.policy_gradient.reinforce import REINFORCE
from pytorchrl.agent.algorithms.policy_gradient.rnd import RND
from pytorchrl.agent.algorithms.policy_gradient.trpo import TRPO, TRPOSinglePath
from pytorchrl.agent.algorithms.results import ActingStep, Losses, Result
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.update_plan import EveryEpisodes, EveryRollout, EveryTransitions, UpdatePlan
from pytorchrl.agent.algorithms.value_based.distributional_dqn import QRDQN, CategoricalDQN
from pytorchrl.agent.algorithms.value_based.dqn import DQN
from pytorchrl.agent.algorithms.value_based.gap_increasing import AL, DPP, PAL, DoublePAL
from pytorchrl.agent.algorithms.value_based.iqn import IQN
from pytorchrl.agent.algorithms.value_based.munchausen import MunchausenDQN, MunchausenIQN
from pytorchrl.agent.algorithms.value_based.naf import NAF
from pytorchrl.agent.algorithms.value_based.qt_opt import QtOpt
from pytorchrl.agent.algorithms.value_based.r2d2 import R2D2
from pytorchrl.agent.algorithms.value_based.rainbow import Rainbow
from pytorchrl.agent.algorithms.value_based.rollout_q_learning import PQN, NStepQLearning
from pytorchrl.agent.algorithms.value_based.sarsa import SARSA, ResidualDQN

__all__ = [
    "A2C",
    "ACER",
    "AIRL",
    "AL",
    "AMP",
    "AWAC",
    "BCQ",
    "BEAR",
    "CQL",
    "CRR",
    "DDPG",
    "DEMMESAC",
    "DPP",
    "DQN",
    "EDAC",
    "GAIL",
    "IMPALA",
    "IQL",
    "IQN",
    "MBMPC",
    "MBPO",
    "MMESAC",
    "MPO",
    "NAF",
    "PAL",
    "PCL",
    "PDDM",
    "PETS",
    "PGT",
    "PPO",
    "PPOD",
    "PQN",
    "QRDQN",
    "QRSAC",
    "R2D2",
    "REDQ",
    "REINFORCE",
    "RND",
    "SAC",
    "SARSA",
    "SVG0",
    "TD3",
    "TD3BC",
    "TQC",
    "TRPO",
    "XQL",
    "ACERContinuous",
    "AIRLReward",
    "AMPReward",
    "ActingStep",
    "AdversarialClassifier",
    "AdversarialReward",
    "Algorithm",
    "BehaviourCloning",
    "CalQL",
    "CategoricalDQN",
    "CrossQ",
    "DAgger",
    "DecisionTransformer",
    "DiscreteBCQ",
    "DiscreteCQL",
    "DoublePAL",
    "DroQ",
    "EveryEpisodes",
    "EveryRollout",
    "EveryTransitions",
    "GAILReward",
    "HyAR",
    "Losses",
    "MPODiscrete",
    "MunchausenDQN",
    "MunchausenIQN",
    "NStepQLearning",
    "Needs",
    "OffPolicyAlgorithm",
    "OptionCritic",
    "PolicyGradient",
    "QtOpt",
    "Rainbow",
    "ResidualDQN",
    "Result",
    "Rows",
    "SACDecomposed",
    "SACDiscrete",
    "SACWithValue",
    "TRPOSinglePath",
    "UnifiedPCL",
    "UpdatePlan",
]
