"""Tasks of `learning_offline.py`: data sets, algorithms, and their hyper-parameters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["random", "medium", "medium-replay", "expert", "mixed"]
SEEDS = (1, 2, 3)


@dataclass(frozen=True)
class Compared:
    """An algorithm of ours and its peer in d3rlpy, with equivalent hyper-parameters."""

    name: str
    """Name of our class."""
    ours: Mapping[str, Any]
    peer: str | None = None
    """Name of the configuration class in d3rlpy; None if it has no such algorithm."""
    theirs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OfflineTask:
    """An environment, the data sets made of it, and the algorithms that learn from them."""

    env: str
    kinds: Sequence[Kind]
    updates: int
    algorithms: Sequence[Compared]
    hidden_sizes: tuple[int, int] = (256, 256)
    transitions: int = 100_000
    train_steps: int | None = None
    """Training steps of the agent that is recorded; the default of `data make` where None."""
    seeds: Sequence[int] = field(default=SEEDS)


_TD3BC = Compared(
    "TD3BC",
    {"lr_pi": 3e-4, "lr_q": 3e-4, "mini_batch_size": 256, "alpha": 2.5},
    "TD3PlusBC",
    {"actor_learning_rate": 3e-4, "critic_learning_rate": 3e-4, "batch_size": 256, "alpha": 2.5},
)
_IQL = Compared(
    "IQL",
    {"lr_pi": 3e-4, "lr_q": 3e-4, "lr_value": 3e-4, "mini_batch_size": 256, "expectile": 0.7},
    "IQL",
    {"actor_learning_rate": 3e-4, "critic_learning_rate": 3e-4, "batch_size": 256, "expectile": 0.7},
)
_DISCRETE_CQL = Compared(
    "DiscreteCQL",
    {
        "lr": 3e-4,
        "mini_batch_size": 64,
        "polyak": 0.0,
        "target_update_interval": 250,
        "huber_threshold": 1.0,
        "conservative_weight": 1.0,
        "max_grad_norm": None,
    },
    "DiscreteCQL",
    {"learning_rate": 3e-4, "batch_size": 64, "target_update_interval": 250, "alpha": 1.0},
)
_DISCRETE_BCQ = Compared(
    "DiscreteBCQ",
    {
        "lr": 3e-4,
        "mini_batch_size": 64,
        "polyak": 0.0,
        "target_update_interval": 250,
        "max_grad_norm": None,
    },
    "DiscreteBCQ",
    {
        "learning_rate": 3e-4,
        "batch_size": 64,
        "target_update_interval": 250,
        "action_flexibility": 0.3,
        "beta": 0.01,
        "share_encoder": False,
    },
)
_NO_CLIP = 1e6
_RATES = {"lr_pi": 3e-4, "lr_q": 3e-4, "mini_batch_size": 256}
_THEIR_RATES = {"actor_learning_rate": 3e-4, "critic_learning_rate": 3e-4, "batch_size": 256}
_AWAC = Compared("AWAC", _RATES, "AWAC", _THEIR_RATES)
_CRR = Compared("CRR", _RATES, "CRR", _THEIR_RATES | {"target_update_type": "soft"})
_XQL = Compared("XQL", _RATES | {"lr_value": 3e-4})
_CQL = Compared(
    "CQL",
    _RATES | {"lr_alpha": 3e-4, "conservative_weight": 5.0, "num_samples": 10},
    "CQL",
    # Without learning it, the multiplier of the weight is 1.
    _THEIR_RATES
    | {
        "temp_learning_rate": 3e-4,
        "conservative_weight": 5.0,
        "n_action_samples": 10,
        "alpha_learning_rate": 0.0,
        "alpha_threshold": 0.0,
    },
)
_BCQ = Compared(
    "BCQ",
    _RATES | {"lr_vae": 3e-4, "phi": 0.05, "kl_weight": 0.5, "num_target_actions": 10, "num_actions": 10},
    "BCQ",
    # One number is of the actions in targets and in acting.
    _THEIR_RATES
    | {"imitator_learning_rate": 3e-4, "action_flexibility": 0.05, "beta": 0.5, "lam": 0.75, "n_action_samples": 10},
)
_BEAR = Compared(
    "BEAR",
    _RATES
    | {
        "lr_vae": 3e-4,
        "lr_multiplier": 1e-3,
        "threshold": 0.05,
        "kernel": "laplacian",
        "sigma": 20.0,
        "num_kernel_actions": 4,
        "noise_clip": _NO_CLIP,
        "num_target_actions": 10,
        "num_actions": 100,
        "warmup_updates": 1_000,
    },
    "BEAR",
    _THEIR_RATES
    | {
        "imitator_learning_rate": 3e-4,
        "alpha_learning_rate": 1e-3,
        "alpha_threshold": 0.05,
        "mmd_kernel": "laplacian",
        "mmd_sigma": 20.0,
        "n_mmd_action_samples": 4,
        "n_target_samples": 10,
        "n_action_samples": 100,
        "warmup_steps": 1_000,
        # The paper's policy has no entropy bonus.
        "temp_learning_rate": 0.0,
        "initial_temperature": 1e-8,
    },
)
_FAST = {"lr_pi": 1e-3, "lr_q": 1e-3, "mini_batch_size": 256}
_THEIR_FAST = {"actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3, "batch_size": 256}
# The weights of ReBRAC and FQL were chosen by runs with another seed, in which other weights of TD3BC and IQL were not
# better than those of the papers.
_REGULARISED = (
    Compared("TD3BC", _FAST | {"alpha": 2.5}, "TD3PlusBC", _THEIR_FAST | {"alpha": 2.5}),
    Compared("IQL", _FAST | {"lr_value": 1e-3, "expectile": 0.7}, "IQL", _THEIR_FAST | {"expectile": 0.7}),
    Compared(
        "ReBRAC",
        _FAST | {"policy_penalty": 0.02, "critic_penalty": 0.1},
        "ReBRAC",
        _THEIR_FAST | {"actor_beta": 0.02, "critic_beta": 0.1},
    ),
    Compared("FQL", _FAST | {"lr_flow": 1e-3, "alpha": 1.0}),
)
_OF_SAC: tuple[Kind, ...] = ("medium", "medium-replay", "mixed")

TASKS: dict[str, OfflineTask] = {
    "cartpole": OfflineTask("CartPole-v1", ("random", "expert"), 4_000, (_DISCRETE_CQL,), (64, 64), 20_000),
    "pendulum": OfflineTask("Pendulum-v1", _OF_SAC, 10_000, (_TD3BC, _IQL), transitions=50_000),
    "cartpole-more": OfflineTask(
        "CartPole-v1", ("random", "expert"), 4_000, (_DISCRETE_BCQ,), (64, 64), 20_000, seeds=range(1, 9)
    ),
    "pendulum-more": OfflineTask("Pendulum-v1", ("medium",), 10_000, (_AWAC, _CRR, _XQL), transitions=50_000),
    "pendulum-constrained": OfflineTask("Pendulum-v1", ("medium",), 5_000, (_CQL, _BEAR), transitions=50_000),
    "pendulum-bcq": OfflineTask("Pendulum-v1", ("medium",), 5_000, (_BCQ,), transitions=50_000, seeds=range(1, 7)),
    "pendulum-regularised": OfflineTask("Pendulum-v1", ("medium",), 8_000, _REGULARISED, (64, 64), transitions=50_000),
    "hopper": OfflineTask("Hopper-v5", _OF_SAC, 10_000, (_TD3BC, _IQL), train_steps=150_000),
}
