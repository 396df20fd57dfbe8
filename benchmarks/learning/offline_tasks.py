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
_RATES = {"lr_pi": 3e-4, "lr_q": 3e-4, "mini_batch_size": 256}
_THEIR_RATES = {"actor_learning_rate": 3e-4, "critic_learning_rate": 3e-4, "batch_size": 256}
_AWAC = Compared("AWAC", _RATES, "AWAC", _THEIR_RATES)
_CRR = Compared("CRR", _RATES, "CRR", _THEIR_RATES | {"target_update_type": "soft"})
_XQL = Compared("XQL", _RATES | {"lr_value": 3e-4})
_OF_SAC: tuple[Kind, ...] = ("medium", "medium-replay", "mixed")

TASKS: dict[str, OfflineTask] = {
    "cartpole": OfflineTask("CartPole-v1", ("random", "expert"), 4_000, (_DISCRETE_CQL,), (64, 64), 20_000),
    "pendulum": OfflineTask("Pendulum-v1", _OF_SAC, 10_000, (_TD3BC, _IQL), transitions=50_000),
    "cartpole-more": OfflineTask(
        "CartPole-v1", ("random", "expert"), 4_000, (_DISCRETE_BCQ,), (64, 64), 20_000, seeds=range(1, 9)
    ),
    "pendulum-more": OfflineTask("Pendulum-v1", ("medium",), 10_000, (_AWAC, _CRR, _XQL), transitions=50_000),
    "hopper": OfflineTask("Hopper-v5", _OF_SAC, 10_000, (_TD3BC, _IQL), train_steps=150_000),
}
