"""Compositions for ``learning_page.py models``: algorithms with latent models, beside ones without, in few steps."""

from collections.abc import Mapping
from typing import Any

import pytorchrl as prl
from benchmarks.learning.learning_task import Composition, Page, Task
from benchmarks.learning.values_compositions import cartpole
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


MODELS = Page(
    title="Results of algorithms with latent models",
    target="learning-models",
    compositions="models_compositions.py",
    about=(
        "[DreamerV3](algorithms/dreamer_v3.md) learns a policy in imagined latent states, "
        "[TDMPC2](algorithms/td_mpc2.md) plans in them, and [MRQ](algorithms/mrq.md) learns its representation by "
        "predicting them. Sizes and settings are small ones for a CPU, of `small()`, the preset and the example of "
        "their pages; they are not the papers'."
    ),
    tasks={
        "cartpole": Task(
            env="CartPole-v1",
            target_steps=_CARTPOLE_STEPS,
            seeds=_SEEDS,
            episodes=20,
            summary="median",
            compositions={"DreamerV3": _dreamer(), "DQN": cartpole(prl.DQN, buffer_size=_CARTPOLE_STEPS)},
            threshold=400.0,
            settings="`DQN` has the settings of [values.md](values.md).",
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
    },
)
