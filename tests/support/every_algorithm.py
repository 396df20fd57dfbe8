"""Every exported algorithm with settings that train in a second, the action spaces that it supports, and data."""

from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

import pytorchrl as prl
from storages.datasets import write_dataset
from storages.episode import Episode
from storages.transition import ACT, REW
from tests.support.hybrid import joined
from tests.support.toys import Counter


class GAILOnA2C(prl.GAILReward, prl.A2C):
    """A learnt reward that is combined with another algorithm."""


class AIRLWithPPO(prl.AIRLReward, prl.PPO):
    """A learnt reward that is combined with another algorithm."""


ACTIONS: dict[str, Any] = {
    "discrete": spaces.Discrete(3, start=1),
    "bounded": spaces.Box(np.array([-1, 0], np.float32), np.array([3, 0.5], np.float32)),
    "unbounded": spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "several": spaces.MultiDiscrete([2, 3]),
    "binary": spaces.MultiBinary(3),
    "hybrid": joined(),
}
PLAIN = [kind for kind in ACTIONS if kind != "hybrid"]
"""Kinds of actions, without a Box that stands for a choice and its parameters."""
WITH_MEMORY = (prl.R2D2, prl.DreamerV3)
"""Algorithms that need an actor with a memory."""
FEW_QUANTILES = {"num_quantiles": 5, "num_target_quantiles": 4, "num_action_quantiles": 3, "num_cosines": 4}
OFF_POLICY: dict[str, Any] = {
    "DQN": (prl.DQN, {}, ["discrete"]),
    "SARSA": (prl.SARSA, {}, ["discrete"]),
    "ResidualDQN": (prl.ResidualDQN, {"grad_scale": 0.5}, ["discrete"]),
    "AL": (prl.AL, {}, ["discrete"]),
    "PAL": (prl.PAL, {}, ["discrete"]),
    "DoublePAL": (prl.DoublePAL, {}, ["discrete"]),
    "DPP": (prl.DPP, {}, ["discrete"]),
    "R2D2": (prl.R2D2, {}, ["discrete"]),
    "Rainbow": (prl.Rainbow, {"num_atoms": 5, "explorer": prl.EpsilonGreedy(0.1)}, ["discrete"]),
    "SPR": (prl.SPR, {"num_atoms": 5, "explorer": prl.EpsilonGreedy(0.1), "horizon": 2}, ["discrete"]),
    "BBF": (prl.BBF, {"num_atoms": 5, "epsilon": 0.1, "horizon": 3, "optimizer": prl.Adam()}, ["discrete"]),
    "CategoricalDQN": (prl.CategoricalDQN, {"num_atoms": 5}, ["discrete"]),
    "IQN": (prl.IQN, {**FEW_QUANTILES, "risk": prl.risk_measures.CVaR(0.5)}, ["discrete"]),
    "MunchausenDQN": (prl.MunchausenDQN, {}, ["discrete"]),
    "MunchausenIQN": (prl.MunchausenIQN, {**FEW_QUANTILES, "quantile_layers": (5,)}, ["discrete"]),
    "QRDQN": (prl.QRDQN, {"num_quantiles": 5}, ["discrete"]),
    "NAF": (prl.NAF, {}, ["bounded"]),
    "QtOpt": (prl.QtOpt, {"num_samples": 5, "num_elites": 2, "lag": 3}, ["bounded"]),
    "PETS": (
        prl.PETS,
        {"planner": prl.planners.CrossEntropy(3, 2, 5, 2), "ensemble_size": 2, "num_particles": 2},
        ["bounded"],
    ),
    "PDDM": (prl.PDDM, {"planner": prl.planners.PathIntegral(3, num_samples=5, smoothing=0.3)}, ["bounded"]),
    "MBMPC": (prl.MBMPC, {"planner": prl.planners.RandomShooting(3, 5)}, ["bounded"]),
    "MBPO": (prl.MBPO, {"ensemble_size": 2, "rollout_length": 2, "num_mini_batch": 2}, ["bounded"]),
    "DreamerV3": (
        prl.DreamerV3,
        {
            "num_latents": 3,
            "num_classes": 4,
            "num_bins": 11,
            "horizon": 3,
            "entropy_coef": 10.0,
            "lr_pi": 1e-2,
            "free_nats": 0.0,
        },
        PLAIN,
    ),
    "TDMPC2": (
        prl.TDMPC2,
        {
            "planner": prl.planners.ElitePathIntegral(3, 2, 6, 3, 2),
            "latent_size": 6,
            "simplex_size": 3,
            "num_critics": 3,
            "num_bins": 11,
            "pretraining_updates": 2,
        },
        ["bounded"],
    ),
    "TDMPC2, by the policy": (
        prl.TDMPC2,
        {"planner": None, "latent_size": 4, "simplex_size": 2, "num_bins": 5, "pretraining_updates": 0},
        ["bounded"],
    ),
    "SAC": (prl.SAC, {}, ["bounded"]),
    "SAC, gSDE": (prl.SAC, {"distribution": prl.heads.GSDEPolicy(5, squash=True)}, ["bounded"]),
    "SACDiscrete": (prl.SACDiscrete, {}, ["discrete"]),
    "SACWithValue": (prl.SACWithValue, {"policy_delay": 2}, ["bounded"]),
    "MMESAC": (prl.MMESAC, {}, ["bounded"]),
    "DEMMESAC": (prl.DEMMESAC, {"policy_delay": 2}, ["bounded"]),
    "REDQ": (prl.REDQ, {"num_critics": 3, "num_mini_batch": 2, "policy_delay": 2}, ["bounded"]),
    "DroQ": (prl.DroQ, {"num_mini_batch": 2, "dropout": 0.2}, ["bounded"]),
    "SACDecomposed": (prl.SACDecomposed, {"policy_delay": 2}, ["bounded"]),
    "QRSAC": (prl.QRSAC, {"num_quantiles": 5}, ["bounded"]),
    "TQC": (prl.TQC, {"num_critics": 2, "num_quantiles": 5}, ["bounded"]),
    "CrossQ": (prl.CrossQ, {"renorm_warmup": 3}, ["bounded"]),
    "MPO": (prl.MPO, {"num_samples": 3, "target_update_interval": 2}, ["bounded"]),
    "MPODiscrete": (prl.MPODiscrete, {}, ["discrete"]),
    "TD3": (prl.TD3, {}, ["bounded"]),
    "DrQV2": (prl.DrQV2, {"feature_size": 4}, ["bounded"]),
    "MRQ": (
        prl.MRQ,
        {"target_update_interval": 2, "action_features": 4, "num_bins": 7, "optimizer": prl.Adam()},
        ["bounded"],
    ),
    "HyAR": (
        prl.HyAR,
        {"pretraining_updates": 3, "representation_every": 3, "representation_updates": 2, "latent_size": 2},
        ["hybrid"],
    ),
    "HyAR, without predictions": (
        prl.HyAR,
        {"pretraining_updates": 2, "embedding_size": 1, "dynamics_weight": 0.0},
        ["hybrid"],
    ),
    "DDPG": (prl.DDPG, {"explorer": prl.OrnsteinUhlenbeck(0.2)}, ["bounded"]),
    "SVG0": (prl.SVG0, {}, ["bounded"]),
    "PGT": (prl.PGT, {"num_critics": 2, "policy_delay": 2}, ["bounded"]),
    "ACER": (prl.ACER, {"replay_ratio": 2.0}, ["discrete"]),
    "ACERContinuous": (prl.ACERContinuous, {"replay_ratio": 2.0}, ["bounded", "unbounded"]),
    "PCL": (prl.PCL, {"replay_ratio": 2.0, "path_length": 3, "together": True}, PLAIN),
    "UnifiedPCL": (prl.UnifiedPCL, {"replay_ratio": 2.0}, ["discrete"]),
    "BCQ": (prl.BCQ, {"num_actions": 4, "num_target_actions": 3}, ["bounded"]),
    "DiscreteBCQ": (prl.DiscreteBCQ, {}, ["discrete"]),
    "BEAR": (
        prl.BEAR,
        {"num_actions": 4, "num_target_actions": 3, "num_critics": 3, "warmup_updates": 3, "kernel": "laplacian"},
        ["bounded"],
    ),
    "TD3BC": (prl.TD3BC, {}, ["bounded"]),
    "ReBRAC": (prl.ReBRAC, {}, ["bounded"]),
    "FQL": (prl.FQL, {"flow_steps": 3}, ["bounded"]),
    "CQL": (prl.CQL, {"num_samples": 3}, ["bounded"]),
    "CQL, by a multiplier": (prl.CQL, {"num_samples": 2, "lagrange_threshold": 5.0}, ["bounded"]),
    "CalQL": (prl.CalQL, {"num_samples": 2}, ["bounded"]),
    "DiscreteCQL": (prl.DiscreteCQL, {}, ["discrete"]),
    "IQL": (prl.IQL, {}, ["bounded"]),
    "XQL": (prl.XQL, {}, ["bounded"]),
    "AWAC": (prl.AWAC, {"num_samples": 2}, ["bounded"]),
    "CRR": (prl.CRR, {"compared_with": "max"}, ["bounded"]),
    "EDAC": (prl.EDAC, {"num_critics": 3}, ["bounded"]),
    "DecisionTransformer": (
        prl.DecisionTransformer,
        {"embedding_size": 4, "num_heads": 2, "num_layers": 1, "context_length": 3, "max_timestep": 4},
        PLAIN,
    ),
    "BehaviourCloning": (prl.BehaviourCloning, {}, PLAIN),
    "BehaviourCloning, mixture": (
        prl.BehaviourCloning,
        {"distribution": prl.heads.MixturePolicy(num_components=2)},
        ["bounded", "unbounded"],
    ),
    "BehaviourCloning, squashed": (
        prl.BehaviourCloning,
        {"distribution": prl.heads.SquashedGaussianPolicy()},
        ["bounded"],
    ),
    "DAgger": (prl.DAgger, {"beta": 0.3}, PLAIN),
}
ON_POLICY: dict[str, Any] = {
    "PPO": (prl.PPO, {"num_mini_batch": 2, "num_epochs": 2}, PLAIN),
    "PPO with its options": (
        prl.PPO,
        {"num_mini_batch": 2, "desired_kl": 1e-3, "dual_clip": 3.0, "normalize_advantages": "rollout"},
        PLAIN,
    ),
    "A2C": (prl.A2C, {}, PLAIN),
    "OptionCritic": (prl.OptionCritic, {"num_options": 3, "deliberation_cost": 0.1}, PLAIN),
    "OptionCritic, Beta": (
        prl.OptionCritic,
        {"num_options": 2, "distribution": prl.heads.BetaPolicy(), "num_mini_batch": 2},
        ["bounded"],
    ),
    "IMPALA": (prl.IMPALA, {}, PLAIN),
    "PPO, gSDE": (prl.PPO, {"num_mini_batch": 2, "distribution": prl.heads.GSDEPolicy(5)}, ["bounded", "unbounded"]),
    "A2C, Beta": (prl.A2C, {"distribution": prl.heads.BetaPolicy()}, ["bounded"]),
    "TRPO": (prl.TRPO, {"value_epochs": 2, "value_mini_batches": 2}, PLAIN),
    "TRPOSinglePath": (prl.TRPOSinglePath, {}, PLAIN),
    "RND": (prl.RND, {"num_mini_batch": 2, "num_features": 4}, PLAIN),
    "NStepQLearning": (prl.NStepQLearning, {"target_update_interval_steps": 20}, ["discrete"]),
    "PQN": (prl.PQN, {"num_mini_batch": 2, "num_epochs": 2}, ["discrete"]),
    "REINFORCE": (prl.REINFORCE, {"episodes_per_update": 3}, PLAIN),
    "GAIL": (prl.GAIL, {"value_epochs": 2, "discriminator_epochs": 2}, PLAIN),
    "PPOD": (prl.PPOD, {"num_mini_batch": 2, "capacity": 3}, PLAIN),
    "PPOD, as if it had acted": (prl.PPOD, {"num_mini_batch": 2, "repeated_as": "policy"}, PLAIN),
    "GAIL on A2C": (GAILOnA2C, {"discriminator_epochs": 2}, PLAIN),
    "AMP": (prl.AMP, {"num_mini_batch": 2, "discriminator_epochs": 2}, PLAIN),
    "AIRL": (prl.AIRL, {"value_epochs": 2, "discriminator_epochs": 2}, PLAIN),
    "AIRL on PPO": (AIRLWithPPO, {"num_mini_batch": 2, "reward_of": "state"}, PLAIN),
}


class Constant:
    """An expert that always takes the same action."""

    def __init__(self, space: Any) -> None:
        space.seed(7)
        self.action = np.zeros(space.shape, space.dtype) if isinstance(space, spaces.Box) else space.sample()

    def __call__(self, observations: Any) -> Any:
        return np.stack(
            [self.action] * len(next(iter(observations.values())) if isinstance(observations, dict) else observations)
        )


def expert_data(folder: Path, kind: str, space: Any, env: Any = None) -> Path:
    """Write a data set of six episodes of five random actions, in an environment or a `Counter` of a kind."""
    path = folder / "expert.npz"
    if not path.exists():
        env = Counter(kind, length=5, actions=space) if env is None else env
        space.seed(0)
        episodes = []
        for _ in range(6):
            visited, actions = [env.reset()[0]], []
            for _ in range(5):
                actions.append(space.sample())
                visited.append(env.step(actions[-1])[0])
            observations: Any = (
                {key: np.stack([one[key] for one in visited]) for key in visited[0]}
                if isinstance(visited[0], dict)
                else np.stack([np.atleast_1d(one) for one in visited])
            )
            start = getattr(space, "start", 0)
            stored = np.stack([np.atleast_1d(action - start) for action in actions])
            fields = {ACT: stored, REW: np.ones((5, 1), np.float32)}
            episodes.append(Episode(observations, fields, terminated=True, truncated=False))
        write_dataset(path, episodes)
    return path
