"""Compositions for ``learning_page.py strategies``: one algorithm in each task, with each strategy of replay."""

from collections.abc import Mapping
from typing import Any

import pytorchrl as prl
from benchmarks.learning.learning_task import Composition, Page, Task
from benchmarks.learning.values_compositions import BREAKOUT_SETTINGS, FRAMES_BETWEEN_UPDATES, breakout
from pytorchrl.agent.algorithms.off_policy import Preset
from storages.component.factory import Factory
from storages.storage import Storage

PLAIN = "uniform"
"""The strategy that the others are compared with."""
_PRIORITIES: dict[str, Any] = {
    "alpha": 0.6,
    "beta": prl.LinearSchedule(0.4, 1.0),
    "epsilon": 1e-2,
    "default_error": "largest",
}
_RECENCY: dict[str, Any] = {"eta": 0.996}
_STEPS: dict[str, Any] = {"n_step": 3}
STRATEGIES: Mapping[str, dict[str, Any]] = {
    PLAIN: {},
    "3-step": _STEPS,
    "PER": _PRIORITIES,
    "ERE": _RECENCY,
    "PER and 3-step": _PRIORITIES | _STEPS,
    "PER, 3-step and ERE": _PRIORITIES | _STEPS | _RECENCY,
}
"""Hyper-parameters of :class:`EREBuffer`, whose defaults are uniform replay of single steps."""

_GAMES = ("Asterix", "Breakout", "SpaceInvaders")
_GAME_FRAMES = 300_000
_PHASE_FRAMES = 400
_CONTROL = ("HalfCheetah-v5", "Hopper-v5")
_CONTROL_STEPS = 100_000
_PHASE_STEPS = 250
_SEEDS = (1, 2, 3)


def _storage(size: int, strategy: Mapping[str, Any]) -> Factory[Storage]:
    return prl.EREBuffer.create_factory(size=size, **strategy)


def _dqn(strategy: Mapping[str, Any]) -> Composition:
    common = breakout(prl.DQN, update_every=_PHASE_FRAMES, num_mini_batch=_PHASE_FRAMES // FRAMES_BETWEEN_UPDATES)

    def compose() -> Preset:
        return Preset({**common.compose(), "storage_factory": _storage(BREAKOUT_SETTINGS["buffer_size"], strategy)})

    return Composition(compose)


def _sac(strategy: Mapping[str, Any]) -> Composition:
    def compose() -> Preset:
        algo_factory = prl.SAC.create_factory(
            lr_pi=3e-4,
            lr_q=3e-4,
            lr_alpha=3e-4,
            start_steps=5_000,
            update_every=_PHASE_STEPS,
            num_mini_batch=_PHASE_STEPS,
            mini_batch_size=256,
            test_every=0,
        )
        return Preset(
            algo_factory=algo_factory,
            actor_factory=prl.OffPolicyActor.create_factory(hidden_sizes=(256, 256)),
            storage_factory=_storage(_CONTROL_STEPS, strategy),
        )

    return Composition(compose)


STRATEGIES_PAGE = Page(
    title="What strategies of replay change",
    target="learning-strategies",
    compositions="strategies_compositions.py",
    about=(
        "One algorithm in each task, and one storage, `EREBuffer`, whose hyper-parameters choose the strategy: returns "
        "over 3 steps (`n_step=3`), priorities (`alpha=0.6`, a beta from 0.4 to 1, an epsilon of 0.01, new transitions "
        "with the largest error), emphasis on recent experience (`eta=0.996`), and all of them at once. Everything "
        "else is the same; no hyper-parameter was tuned for any of them. That 3-step returns learn slowly in Asterix "
        "is of the method, in so few frames: a plain DQN without any of our code, "
        "`benchmarks/learning/plain_n_step.py`, had mean returns of 4.6 and 4.9 over its last 50 episodes of training "
        "with 3 steps, and 12.0 with one."
    ),
    baseline=PLAIN,
    tasks={
        **{
            game.lower(): Task(
                env=f"pytorchrl/MinAtar-{game}-v0",
                target_steps=_GAME_FRAMES,
                seeds=_SEEDS,
                episodes=100,
                summary="interval",
                compositions={name: _dqn(strategy) for name, strategy in STRATEGIES.items()},
                env_kwargs={"max_episode_steps": 5_000},  # for greedy policies that never lose
                package="minatar",
                settings=(
                    "Double DQN with the network and the settings of [values.md](values.md): 100 updates after every "
                    "400 frames."
                ),
            )
            for game in _GAMES
        },
        **{
            env.partition("-")[0].lower(): Task(
                env=env,
                target_steps=_CONTROL_STEPS,
                seeds=_SEEDS,
                episodes=20,
                summary="interval",
                compositions={name: _sac(strategy) for name, strategy in STRATEGIES.items()},
                package="mujoco",
                settings="SAC with two layers of 256 units, 250 updates after every 250 steps.",
            )
            for env in _CONTROL
        },
    },
)
