"""Compose a scheme of an algorithm and an environment in one call, with the defaults of `train`."""

import inspect
from collections.abc import Callable
from typing import Any

from pytorchrl.agent.actors import Actor
from pytorchrl.agent.algorithms import Algorithm
from pytorchrl.agent.envs import VecEnv
from pytorchrl.agent.other_names import SCHEME_NAMES
from pytorchrl.commands.composition.description import merge_descriptions
from pytorchrl.commands.composition.parts import make_parts, part_named
from pytorchrl.commands.composition.presets import fit_preset, preset_of
from pytorchrl.scheme import Scheme
from pytorchrl.scheme.compatibility import CompositionError
from storages import Storage
from storages.component.factory import Factory
from storages.component.other_names import here_instead


def compose(
    algorithm: str | type[Algorithm] | Factory[Algorithm],
    env: str | Callable[..., Any] | Factory[VecEnv],
    *,
    actor: str | type[Actor] | Factory[Actor] | None = None,
    storage: str | type[Storage] | Factory[Storage] | None = None,
    num_envs: int | None = None,
    preprocessing: bool = True,
    **others: Any,
) -> Scheme:
    """Make a scheme of an algorithm and an environment; parts that are not given are chosen to fit.

    Parts are given by name, as on the command line, or as factories. An algorithm given by name or class takes the
    hyper-parameters of the preset for the environment, if there is one (see docs/presets.md), as in `train`; one given
    as a factory keeps its own, and no preset is used. The scheme's `config` shows what was chosen.

    Args:
        algorithm: "DQN", the class, or a factory.
        env: an environment's id, a callable that makes one, or a factory of environments.
        actor: "OffPolicyActor", the class, or a factory; one that fits the storage where left out.
        storage: "PER", the class, or a factory; one that the algorithm learns from where left out.
        num_envs: copies of the environment; the preset's, or one, where left out.
        preprocessing: whether games of Atari given by id are those of :func:`atari_envs`; else their frames are raw.
        others: arguments of :class:`Scheme`, such as `seed` and `device`.

    Raises:
        CompositionError: a name means no part, or the parts do not fit together.
        TypeError: there is no such argument.
        ValueError: `num_envs` is given beside a factory of environments.
    """
    if isinstance(env, Factory) and num_envs is not None:
        raise ValueError(
            "compose: num_envs conflicts with the factory given as env; set it there: create_factory(..., num_envs=...)"
        )
    known = {**inspect.signature(compose).parameters, **inspect.signature(Scheme).parameters}
    if unknown := sorted(others.keys() - inspect.signature(Scheme).parameters.keys()):
        hints = {name: here_instead(name, known, SCHEME_NAMES) for name in unknown}
        known_hints = ", ".join(hint if len(hints) == 1 else f"{name}: {hint}" for name, hint in hints.items() if hint)
        way_out = (
            "hyper-parameters are arguments of factories, such as prl.compose(prl.PPO.create_factory(lr=1e-3), env)"
        )
        raise TypeError(f"compose: there is no argument {', '.join(unknown)}; {known_hints or way_out}")
    algorithm = _name_or_factory(Algorithm, algorithm)
    actor, storage = _name_or_factory(Actor, actor), _name_or_factory(Storage, storage)
    given = {"algorithm": algorithm, "actor": actor, "storage": storage, "env": env}
    factories = {kind: part for kind, part in given.items() if isinstance(part, Factory)}
    chosen: dict[str, Any] = {
        kind: {"name": part} for kind, part in given.items() if part is not None and kind not in factories
    }
    if num_envs is not None:
        chosen["env"]["num_envs"] = num_envs
    preset: dict[str, Any] = {}
    if isinstance(algorithm, str):
        made = env.hyper_parameters["env"] if isinstance(env, Factory) else env
        preset, _ = preset_of(part_named(Algorithm, algorithm), str(made))
    parts = make_parts(
        merge_descriptions(fit_preset(preset, chosen), chosen, {"preprocessing": preprocessing}), factories
    )
    return Scheme(parts.algorithm, parts.actor, parts.storage, parts.envs, **others)


def _name_or_factory(kind: type[Any], part: Any) -> Any:
    if not isinstance(part, type):
        return part
    if part_named(kind, part.__name__) is not part:
        raise CompositionError(
            f"compose: there is more than one class {part.__name__}; give a factory, {part.__name__}.create_factory()"
        )
    return part.__name__
