"""Reinforcement and imitation learning algorithms, and the base classes for new ones."""

import types as _types

from pytorchrl.agent.algorithms.actor_critic.acer import ACER as ACER
from pytorchrl.agent.algorithms.actor_critic.acer_continuous import ACERContinuous as ACERContinuous
from pytorchrl.agent.algorithms.actor_critic.crossq import CrossQ as CrossQ
from pytorchrl.agent.algorithms.actor_critic.ddpg import DDPG as DDPG
from pytorchrl.agent.algorithms.actor_critic.hyar import HyAR as HyAR
from pytorchrl.agent.algorithms.actor_critic.mmesac import DEMMESAC as DEMMESAC
from pytorchrl.agent.algorithms.actor_critic.mmesac import MMESAC as MMESAC
from pytorchrl.agent.algorithms.actor_critic.mpo import MPO as MPO
from pytorchrl.agent.algorithms.actor_critic.mpo_discrete import MPODiscrete as MPODiscrete
from pytorchrl.agent.algorithms.actor_critic.pcl import PCL as PCL
from pytorchrl.agent.algorithms.actor_critic.pcl import UnifiedPCL as UnifiedPCL
from pytorchrl.agent.algorithms.actor_critic.quantile_sac import QRSAC as QRSAC
from pytorchrl.agent.algorithms.actor_critic.quantile_sac import TQC as TQC
from pytorchrl.agent.algorithms.actor_critic.redq import REDQ as REDQ
from pytorchrl.agent.algorithms.actor_critic.redq import DroQ as DroQ
from pytorchrl.agent.algorithms.actor_critic.sac import SAC as SAC
from pytorchrl.agent.algorithms.actor_critic.sac_decomposed import SACDecomposed as SACDecomposed
from pytorchrl.agent.algorithms.actor_critic.sac_discrete import SACDiscrete as SACDiscrete
from pytorchrl.agent.algorithms.actor_critic.sac_with_value import SACWithValue as SACWithValue
from pytorchrl.agent.algorithms.actor_critic.svg0 import PGT as PGT
from pytorchrl.agent.algorithms.actor_critic.svg0 import SVG0 as SVG0
from pytorchrl.agent.algorithms.actor_critic.td3 import TD3 as TD3
from pytorchrl.agent.algorithms.algorithm import Algorithm as Algorithm
from pytorchrl.agent.algorithms.imitation.adversarial_reward import AdversarialClassifier as AdversarialClassifier
from pytorchrl.agent.algorithms.imitation.adversarial_reward import AdversarialReward as AdversarialReward
from pytorchrl.agent.algorithms.imitation.airl import AIRL as AIRL
from pytorchrl.agent.algorithms.imitation.airl import AIRLReward as AIRLReward
from pytorchrl.agent.algorithms.imitation.amp import AMP as AMP
from pytorchrl.agent.algorithms.imitation.amp import AMPReward as AMPReward
from pytorchrl.agent.algorithms.imitation.behaviour_cloning import BehaviourCloning as BehaviourCloning
from pytorchrl.agent.algorithms.imitation.behaviour_cloning import DAgger as DAgger
from pytorchrl.agent.algorithms.imitation.gail import GAIL as GAIL
from pytorchrl.agent.algorithms.imitation.gail import GAILReward as GAILReward
from pytorchrl.agent.algorithms.imitation.ppod import PPOD as PPOD
from pytorchrl.agent.algorithms.model_based.mb_mpc import MBMPC as MBMPC
from pytorchrl.agent.algorithms.model_based.mb_mpc import PDDM as PDDM
from pytorchrl.agent.algorithms.model_based.mb_mpc import PETS as PETS
from pytorchrl.agent.algorithms.model_based.mbpo import MBPO as MBPO
from pytorchrl.agent.algorithms.needs import Needs as Needs
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm as OffPolicyAlgorithm
from pytorchrl.agent.algorithms.offline.awac import AWAC as AWAC
from pytorchrl.agent.algorithms.offline.bcq import BCQ as BCQ
from pytorchrl.agent.algorithms.offline.bear import BEAR as BEAR
from pytorchrl.agent.algorithms.offline.cal_ql import CalQL as CalQL
from pytorchrl.agent.algorithms.offline.cql import CQL as CQL
from pytorchrl.agent.algorithms.offline.crr import CRR as CRR
from pytorchrl.agent.algorithms.offline.decision_transformer import DecisionTransformer as DecisionTransformer
from pytorchrl.agent.algorithms.offline.discrete_offline import DiscreteBCQ as DiscreteBCQ
from pytorchrl.agent.algorithms.offline.discrete_offline import DiscreteCQL as DiscreteCQL
from pytorchrl.agent.algorithms.offline.edac import EDAC as EDAC
from pytorchrl.agent.algorithms.offline.iql import IQL as IQL
from pytorchrl.agent.algorithms.offline.iql import XQL as XQL
from pytorchrl.agent.algorithms.offline.td3_bc import TD3BC as TD3BC
from pytorchrl.agent.algorithms.on_policy import PolicyGradient as PolicyGradient
from pytorchrl.agent.algorithms.policy_gradient.a2c import A2C as A2C
from pytorchrl.agent.algorithms.policy_gradient.a2c import IMPALA as IMPALA
from pytorchrl.agent.algorithms.policy_gradient.option_critic import OptionCritic as OptionCritic
from pytorchrl.agent.algorithms.policy_gradient.ppo import PPO as PPO
from pytorchrl.agent.algorithms.policy_gradient.reinforce import REINFORCE as REINFORCE
from pytorchrl.agent.algorithms.policy_gradient.rnd import RND as RND
from pytorchrl.agent.algorithms.policy_gradient.trpo import TRPO as TRPO
from pytorchrl.agent.algorithms.policy_gradient.trpo_single_path import TRPOSinglePath as TRPOSinglePath
from pytorchrl.agent.algorithms.results import ActingStep as ActingStep
from pytorchrl.agent.algorithms.results import Losses as Losses
from pytorchrl.agent.algorithms.results import Result as Result
from pytorchrl.agent.algorithms.rows import Rows as Rows
from pytorchrl.agent.algorithms.update_plan import EveryEpisodes as EveryEpisodes
from pytorchrl.agent.algorithms.update_plan import EveryRollout as EveryRollout
from pytorchrl.agent.algorithms.update_plan import EveryTransitions as EveryTransitions
from pytorchrl.agent.algorithms.update_plan import UpdatePlan as UpdatePlan
from pytorchrl.agent.algorithms.value_based.distributional_dqn import QRDQN as QRDQN
from pytorchrl.agent.algorithms.value_based.distributional_dqn import CategoricalDQN as CategoricalDQN
from pytorchrl.agent.algorithms.value_based.dqn import DQN as DQN
from pytorchrl.agent.algorithms.value_based.gap_increasing import AL as AL
from pytorchrl.agent.algorithms.value_based.gap_increasing import DPP as DPP
from pytorchrl.agent.algorithms.value_based.gap_increasing import PAL as PAL
from pytorchrl.agent.algorithms.value_based.gap_increasing import DoublePAL as DoublePAL
from pytorchrl.agent.algorithms.value_based.iqn import IQN as IQN
from pytorchrl.agent.algorithms.value_based.munchausen import MunchausenDQN as MunchausenDQN
from pytorchrl.agent.algorithms.value_based.munchausen import MunchausenIQN as MunchausenIQN
from pytorchrl.agent.algorithms.value_based.naf import NAF as NAF
from pytorchrl.agent.algorithms.value_based.qt_opt import QtOpt as QtOpt
from pytorchrl.agent.algorithms.value_based.r2d2 import R2D2 as R2D2
from pytorchrl.agent.algorithms.value_based.rainbow import Rainbow as Rainbow
from pytorchrl.agent.algorithms.value_based.rollout_q_learning import PQN as PQN
from pytorchrl.agent.algorithms.value_based.rollout_q_learning import NStepQLearning as NStepQLearning
from pytorchrl.agent.algorithms.value_based.sarsa import SARSA as SARSA
from pytorchrl.agent.algorithms.value_based.sarsa import ResidualDQN as ResidualDQN

# Classes alone, without the modules that they are imported from.
__all__ = [
    name for name, value in vars().items() if not name.startswith("_") and not isinstance(value, _types.ModuleType)
]
