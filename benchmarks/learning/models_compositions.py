"""Compositions for ``learning_page.py models``: algorithms with latent models, beside ones without, in few steps."""

from collections.abc import Mapping
from typing import Any

import pytorchrl as prl
from benchmarks.learning.learning_task import Composition, Page, Task
from benchmarks.learning.values_compositions import cartpole, preset
from pytorchrl.agent.algorithms.off_policy import Preset
from storages.component.factory import Factory
from storages.storage import Storage

_SEEDS = (1, 2, 3)
_CARTPOLE_STEPS, _PENDULUM_STEPS = 20_000, 5_000
_DREAMER_ENVS = 4
_START_STEPS = 500
_GAMMA = 0.98


def _dreamer() -> Composition:
    def compose() -> Preset:
        preset = prl.DreamerV3.small(num_envs=_DREAMER_ENVS)
        settings = {**preset["algo_factory"].hyper_parameters, "test_every": 0}
        return Preset({**preset, "algo_factory": prl.DreamerV3.create_factory(**settings)})

    return Composition(compose, num_envs=_DREAMER_ENVS)


def _composition(
    algorithm: type[prl.OffPolicyAlgorithm],
    actor: Mapping[str, Any],
    storage: Factory[Storage],
    **settings: Any,
) -> Composition:
    def compose() -> Preset:
        return Preset(
            algo_factory=algorithm.create_factory(**{"test_every": 0} | settings),
            actor_factory=prl.OffPolicyActor.create_factory(**actor),
            storage_factory=storage,
        )

    return Composition(compose)


def _replay(**settings: Any) -> Factory[Storage]:
    return prl.ReplayBuffer.create_factory(size=_CARTPOLE_STEPS, **settings)


def _sac() -> Composition:
    return _composition(
        prl.SAC,
        {"hidden_sizes": (128, 128)},
        _replay(),
        **dict.fromkeys(("lr_pi", "lr_q", "lr_alpha"), 1e-3),
        gamma=_GAMMA,
        polyak=0.99,
        start_steps=_START_STEPS,
        update_every=1,
        mini_batch_size=256,
    )


def _mrq() -> Composition:
    storage = prl.PERBuffer.create_factory(size=_CARTPOLE_STEPS, alpha=0.4, beta=0.0, sequences=prl.Sequences(length=5))
    actor = {"hidden_sizes": (64, 64), "activation": "elu", "layer_norm": True}
    return _composition(prl.MRQ, actor, storage, start_steps=_START_STEPS, mini_batch_size=64, gamma=_GAMMA)


def _td_mpc2() -> Composition:
    planner = prl.planners.ElitePathIntegral(num_iterations=4, num_samples=128, num_elites=16, num_proposals=8)
    return _composition(
        prl.TDMPC2,
        {"hidden_sizes": (128, 128), "activation": "mish", "layer_norm": True},
        _replay(sequences=prl.Sequences(3)),
        gamma=0.975,
        latent_size=64,
        mini_batch_size=128,
        start_steps=_START_STEPS,
        pretraining_updates=_START_STEPS,
        planner=planner,
    )


def _resets_of_bbf(every: int, start_steps: int = 1_000) -> list[prl.Callback]:
    """Return the resets of BBF, with the annealing after each, where there is an update after each step.

    Args:
        every: updates, and steps, between resets; annealing takes a quarter of them.
        start_steps: steps before the first update.
    """
    n_step = prl.ExponentialSchedule(10, 3, fraction=0.25)
    gamma = prl.ExponentialSchedule(0.97, 0.99, fraction=0.25, below_one=True)
    return [
        prl.ResetNetworks(every, last_layers={"q": 1, "transition": 0}, keep=0.5),
        prl.SetHyperParameter("storage", "n_step", prl.RepeatedSchedule(n_step, every, start_steps)),
        prl.SetHyperParameter("algorithm", "gamma", prl.RepeatedSchedule(gamma, every, start_steps)),
    ]


_BREAKOUT: dict[str, Any] = {"update_every": 1, "mini_batch_size": 32, "v_max": 20.0}


def _convolutions(noisy: bool) -> prl.Factory[prl.Actor]:
    return prl.OffPolicyActor.create_factory(
        hidden_sizes=(), feature_extractor="small_convolutions", dueling=True, dueling_size=128, noisy=noisy
    )


MODELS = Page(
    title="Results of algorithms with latent models",
    target="learning-models",
    compositions="models_compositions.py",
    about=(
        "[DreamerV3](algorithms/dreamer_v3.md) learns a policy in imagined latent states, "
        "[TDMPC2](algorithms/td_mpc2.md) plans in them, and [MRQ](algorithms/mrq.md), [SPR](algorithms/spr.md) and "
        "[BBF](algorithms/bbf.md) learn their representations by predicting them. Sizes and settings are small ones "
        "for a CPU, of `small()`, the preset and the example of "
        "their pages; they are not the papers'."
    ),
    tasks={
        "cartpole": Task(
            env="CartPole-v1",
            target_steps=_CARTPOLE_STEPS,
            seeds=_SEEDS,
            episodes=20,
            summary="median",
            compositions={
                "DreamerV3": _dreamer(),
                "SPR": preset(prl.SPR.small),
                "BBF": preset(prl.BBF.small, callbacks=lambda: _resets_of_bbf(10_000)),
                "Rainbow": preset(prl.Rainbow.small, update_every=1),
                "DQN": cartpole(prl.DQN, buffer_size=_CARTPOLE_STEPS),
            },
            threshold=400.0,
            settings=(
                "`DQN` has the settings of [values.md](values.md). `SPR`, `BBF` and `Rainbow` learn from 64 rows after "
                "each step; `BBF` resets its networks after 10,000 updates."
            ),
        ),
        "pendulum": Task(
            env="Pendulum-v1",
            target_steps=_PENDULUM_STEPS,
            seeds=_SEEDS,
            episodes=20,
            summary="median",
            compositions={"DreamerV3": _dreamer(), "TDMPC2": _td_mpc2(), "MRQ": _mrq(), "SAC": _sac()},
            threshold=-200.0,
            settings=(
                "All but `DreamerV3` act at random for 500 steps, and learn after every step; `SAC` has two layers of "
                "128 units, and learns from 256 transitions."
            ),
        ),
        "breakout": Task(
            env="pytorchrl/MinAtar-Breakout-v0",
            target_steps=30_000,
            seeds=_SEEDS,
            episodes=100,
            summary="mean",
            compositions={
                "SPR": preset(prl.SPR.small, actor_factory=_convolutions(noisy=True), **_BREAKOUT),
                "BBF": preset(
                    prl.BBF.small,
                    actor_factory=_convolutions(noisy=False),
                    callbacks=lambda: _resets_of_bbf(10_000),
                    **_BREAKOUT,
                ),
                "Rainbow": preset(prl.Rainbow.small, actor_factory=_convolutions(noisy=True), **_BREAKOUT),
            },
            settings=(
                "All have one convolution of 16 filters and two streams of 128 units, and learn from 32 rows after "
                "each step; `BBF` resets its networks after every 10,000 updates."
            ),
            env_kwargs={"max_episode_steps": 5_000},
            package="minatar",
            on_request=True,
        ),
    },
)
