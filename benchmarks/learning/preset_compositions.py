"""Compositions that pages take from the presets of ``train``."""

from typing import Any

import pytorchrl as prl
from benchmarks.learning.learning_task import Composition
from pytorchrl.agent.algorithms.off_policy import Preset
from pytorchrl.commands.composition.description import merge_descriptions
from pytorchrl.commands.composition.parts import RunParts, make_parts
from pytorchrl.commands.composition.presets import preset_of


def parts_of_preset(algorithm: str, env: str, steps: int, test_every: int) -> RunParts:
    """Return the parts that ``train`` chooses by a preset, with another number of evaluations.

    Args:
        algorithm: name of its class.
        env: id of the environment.
        steps: environment steps of the run.
        test_every: environment steps between evaluations; 0 makes none.
    """
    preset, _ = preset_of(getattr(prl, algorithm), env)
    chosen = {
        "algorithm": {"name": algorithm, "test_every": test_every},
        "env": {"name": env},
        "steps": steps,
    }
    return make_parts(merge_descriptions(preset, chosen))


def of_preset(algorithm: str, env: str, steps: int, wrappers: tuple[Any, ...] = ()) -> Composition:
    """Return the composition of an algorithm's preset, without evaluations during training.

    Args:
        algorithm: name of its class.
        env: id of the environment.
        steps: environment steps of the run.
        wrappers: of the environments of training.
    """

    def compose() -> Preset:
        parts = parts_of_preset(algorithm, env, steps, test_every=0)
        return Preset(algo_factory=parts.algorithm, actor_factory=parts.actor, storage_factory=parts.storage)

    return Composition(compose, wrappers=wrappers)
