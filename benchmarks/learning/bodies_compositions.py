"""Compositions for ``learning_page.py bodies``: SAC with each body, as it comes and as in the papers of the bodies."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytorchrl as prl
from benchmarks.learning.learning_task import Composition, Page, Task
from pytorchrl.agent.algorithms.off_policy import Preset

_SHARED: dict[str, Any] = {
    "gamma": 0.99,
    "polyak": 0.995,
    "start_steps": 5_000,
    "update_every": 1,
    "mini_batch_size": 256,
    "test_every": 0,
}
_STEPS, _PAPER_STEPS = 20_000, 100_000
_RATE = 3e-4
"""Learning rate of all networks and of the temperature, but that of SimBa's paper in tasks with its settings."""
_DECAY = {"simba": 1e-2, "bronet": 1e-4}
"""Weight decay in the code of the bodies' papers, which the temperature does not have."""


def _sac(
    actor: Mapping[str, Any], decay: float = 0.0, rate: float = _RATE, steps: int = _STEPS, **settings: Any
) -> Preset:
    """Return SAC with a body, and the optimiser of its paper."""
    if decay:
        settings |= {"optimizer": prl.AdamW(weight_decay=decay), "optimizers": {"log_alpha": prl.Adam()}}
    return Preset(
        algo_factory=prl.SAC.create_factory(lr_pi=rate, lr_q=rate, lr_alpha=rate, **_SHARED | settings),
        actor_factory=prl.OffPolicyActor.create_factory(**actor),
        storage_factory=prl.ReplayBuffer.create_factory(size=steps),
    )


def _body(name: str, policy: Sequence[int], critics: Sequence[int]) -> dict[str, Any]:
    sizes = {"policy": {"hidden_sizes": policy}, "critics": {"hidden_sizes": critics}}
    return {"body": name, "normalize_observations": name == "simba", "per_network": sizes}


_SMALL: Mapping[str, Composition] = {
    "MLP": Composition(lambda: _sac({"hidden_sizes": (256, 256)})),
    "MLP, normalised observations": Composition(
        lambda: _sac({"hidden_sizes": (256, 256), "normalize_observations": True})
    ),
    "SimBa": Composition(lambda: _sac(_body("simba", (64,), (64, 64)), _DECAY["simba"])),
    "BroNet": Composition(lambda: _sac(_body("bronet", (128,), (128, 128)), _DECAY["bronet"])),
}


def _of_papers(action_size: int) -> Mapping[str, Composition]:
    """Return compositions with the sizes and settings of the papers' code."""
    common: dict[str, Any] = {"steps": _PAPER_STEPS, "target_entropy": -action_size / 2}
    simba = _body("simba", (128,), (512, 512))
    bronet = _body("bronet", (256,), (512, 512))
    return {
        "MLP": Composition(lambda: _sac({"hidden_sizes": (256, 256)}, num_mini_batch=2, **common)),
        "SimBa": Composition(
            lambda: _sac(simba, _DECAY["simba"], 1e-4, num_mini_batch=2, initial_alpha=0.01, **common)
        ),
        "BroNet": Composition(lambda: _sac(bronet, _DECAY["bronet"], num_mini_batch=2, **common)),
        "BroNet, 10 updates and resets": Composition(
            lambda: _sac(bronet, _DECAY["bronet"], num_mini_batch=10, **common),
            callbacks=lambda: [prl.ResetNetworks(every=350_000)],
        ),
    }


def _large(env: str, action_size: int) -> Task:
    return Task(
        env=env,
        target_steps=_PAPER_STEPS,
        seeds=(1, 2, 3),
        episodes=20,
        summary="interval",
        compositions=_of_papers(action_size),
        package="mujoco",
        about="networks of the papers' sizes",
        on_request=True,
        settings=(
            "SimBa's policy has a block of 128 features and its critics two of 512; BroNet's have one of 256 and two "
            "of 512. Two updates follow every step, or 10, with which all networks are reset after every 350,000 "
            "updates. The target entropy is minus half of the action's components."
        ),
    )


BODIES = Page(
    title="What residual networks change",
    target="learning-bodies",
    compositions="bodies_compositions.py",
    about=(
        "SAC with each [body](guides/larger-networks.md) of its networks. SimBa and BroNet have the weight decay of "
        "their papers' code, 0.01 and 0.0001, and SimBa's observations are normalised by running statistics. Nothing "
        "was tuned for any of them."
    ),
    tasks={
        "halfcheetah-small": Task(
            env="HalfCheetah-v5",
            target_steps=_STEPS,
            seeds=(1, 2),
            episodes=20,
            summary="interval",
            compositions=_SMALL,
            package="mujoco",
            about="small networks",
            settings=(
                "One update after every step, from step 5,000 on, at learning rates of 0.0003. A critic has about "
                "70,000 parameters with each body: an MLP two layers of 256 units, SimBa two blocks of 64 features and "
                "BroNet two of 128. The policies have as many layers, or one block of that size."
            ),
        ),
        "halfcheetah": _large("HalfCheetah-v5", 6),
        "walker2d": _large("Walker2d-v5", 6),
        "ant": _large("Ant-v5", 8),
    },
)
