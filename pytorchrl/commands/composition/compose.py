"""Compose a scheme of an algorithm and an environment in one call, with the defaults of `train`."""

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec

from pytorchrl.agent.actors import Actor
from pytorchrl.agent.algorithms import Algorithm
from pytorchrl.agent.algorithms.refusals import algorithm_of
from pytorchrl.agent.envs import VecEnv
from pytorchrl.agent.envs.games.atari_envs import lost_by_backend
from pytorchrl.agent.other_names import OF_PARTS, SCHEME_NAMES
from pytorchrl.agent.other_names.calls import environment_of
from pytorchrl.commands.composition.description import KINDS, merge_descriptions
from pytorchrl.commands.composition.parts import actor_for, make_parts, part_named, storage_class
from pytorchrl.commands.composition.preset_changes import fit_replay, take_out_normalization, told_of_changes
from pytorchrl.commands.composition.presets import fit_preset, preset_of, replaced_settings
from pytorchrl.scheme import Scheme
from pytorchrl.scheme.compatibility import CompositionError
from pytorchrl.terminal import tell
from storages import Storage
from storages.component.declared import hyper_parameters_of
from storages.component.factory import Factory
from storages.component.other_names import here_instead, hint_for
from storages.component.setting import text_of

_LONGEST_VALUE = 40
"""Characters of a value that an error repeats."""


P = ParamSpec("P")


def _refusing_policies(compose: Callable[P, Scheme]) -> Callable[P, Scheme]:
    """Refuse the name of a policy beside the algorithm and the environment, which other libraries take."""

    @functools.wraps(compose)
    def call(*args: P.args, **kwargs: P.kwargs) -> Scheme:
        if len(args) > _NUM_PLACES:
            cls = algorithm_of(args[0])
            algorithm = "PPO" if cls is None else cls.__name__
            env = environment_of(args[1:], {}) or "CartPole-v1"
            raise TypeError(
                f"compose takes an algorithm and an environment, and {args[1:]!r} were given after the algorithm; the "
                f'observation space chooses the networks, and actor= changes them: prl.compose("{algorithm}", "{env}", '
                f'actor={{"hidden_sizes": (64, 64)}})'
            )
        return compose(*args, **kwargs)

    return call


_NUM_PLACES = 2
"""Arguments that are given by their place: the algorithm and the environment."""


@_refusing_policies
def compose(
    algorithm: str | type[Algorithm] | Factory[Algorithm] | Mapping[str, Any],
    env: str | Callable[..., Any] | Factory[VecEnv] | Mapping[str, Any],
    *,
    actor: str | type[Actor] | Factory[Actor] | Mapping[str, Any] | None = None,
    storage: str | type[Storage] | Factory[Storage] | Mapping[str, Any] | None = None,
    num_envs: int | None = None,
    preprocessing: bool = True,
    **others: Any,
) -> Scheme:
    """Make a scheme of an algorithm and an environment; parts that are not given are chosen to fit.

    Parts are given by name, as on the command line, or as factories. An algorithm given by name or class takes the
    hyper-parameters of the preset for the environment, if there is one (see docs/presets.md), as in `train`; one given
    as a factory keeps its own, and no preset is used, which is said. The scheme's `config` shows what was chosen. A
    factory of environments, or `wrappers` and `env_kwargs` of a dict, replace those of the preset, which is then said.
    With another number of copies than the preset's, a storage that replays holds as many transitions as in the preset;
    what becomes of rollouts and minibatches is said.
    Callbacks of a preset, such as the resets of BBF for Atari, are a learner's, and not part of the scheme.

    A dict has the hyper-parameters that differ from the preset's or the default ones, and the name of the class or of
    the environment: ``compose({"name": "PPO", "lr": 1e-3}, env, actor={"hidden_sizes": (64, 64)})``. That of an actor
    or a storage may leave out the name.

    Args:
        algorithm: "DQN", the class, a factory, or a dict.
        env: an environment's id, a callable that makes one, a factory of environments, or a dict.
        actor: "OffPolicyActor", the class, a factory, or a dict; one that fits the storage where left out.
        storage: "PER", the class, a factory, or a dict; one that the algorithm learns from where left out.
        num_envs: copies of the environment; the preset's, or one, where left out.
        preprocessing: whether games of Atari given by id are those of :func:`atari_envs`; else their frames are raw.
        others: arguments of :class:`Scheme`, such as `seed` and `device`.

    Raises:
        CompositionError: a name means no part, or the parts do not fit together.
        TypeError: there is no such argument, or a part is of another type.
        ValueError: `num_envs` is given beside a factory of environments.
    """
    if isinstance(env, Factory) and num_envs is not None:
        raise ValueError(
            "compose: num_envs conflicts with the factory given as env; set it there: create_factory(..., num_envs=...)"
        )
    given = {"algorithm": algorithm, "actor": actor, "storage": storage, "env": env}
    factories = {kind: part for kind, part in given.items() if isinstance(part, Factory)}
    chosen = {
        kind: _described(kind, part) for kind, part in given.items() if part is not None and kind not in factories
    }
    if num_envs is not None:
        chosen["env"]["num_envs"] = num_envs
    made = env.hyper_parameters["env"] if isinstance(env, Factory) else chosen["env"].get("name")
    cls = algorithm.cls if isinstance(algorithm, Factory) else part_named(Algorithm, chosen["algorithm"]["name"])
    preset, preset_name = preset_of(cls, str(made))
    if isinstance(algorithm, Factory):
        if preset_name is not None:
            tell(
                f"compose: the preset {preset_name} is not used, as algorithm is a factory; a dict changes some of its "
                f'hyper-parameters: {{"name": "{cls.__name__}", ...}}'
            )
        preset, preset_name = {}, None
    whole = merge_descriptions(fit_preset(preset, chosen), chosen, {"preprocessing": preprocessing})
    of_env = env.hyper_parameters if isinstance(env, Factory) else whole["env"]
    whole = fit_replay(whole, preset, chosen, of_env.get("num_envs", 1))
    if take_out_normalization(whole, chosen.get("env", {}), others.get("normalize_rewards")):
        tell(f"compose: the wrapper NormalizeReward of the preset {preset_name} is replaced by normalize_rewards")
    if unknown := sorted(others.keys() - _of_scheme().keys()):
        storage_cls = storage.cls if isinstance(storage, Factory) else storage_class(whole, cls)
        actor_name = whole["actor"].get("name")
        actor_cls = actor_for(storage_cls) if actor_name is None else part_named(Actor, actor_name)
        classes = {
            "algorithm": cls,
            "env": VecEnv,
            "storage": storage_cls,
            "actor": actor.cls if isinstance(actor, Factory) else actor_cls,
        }
        raise TypeError(_unknown_arguments({name: others[name] for name in unknown}, given, classes))
    parts = make_parts(whole, factories)
    replaced = replaced_settings(preset, env.hyper_parameters if isinstance(env, Factory) else chosen["env"])
    count = preset.get("env", {}).get("num_envs")
    if isinstance(env, Factory) and count not in (None, env.hyper_parameters["num_envs"]):
        replaced.append(f"num_envs={count}")
    if replaced:
        tell(f"compose: not used of the preset {preset_name}: {', '.join(replaced)}, as env is given with others")
    sized = {**chosen, "storage": storage.hyper_parameters} if isinstance(storage, Factory) else chosen
    for sentence in told_of_changes(parts, preset, sized):
        tell(f"compose: {sentence}")
    if not isinstance(env, Factory) and parts.envs is not None and (lost := lost_by_backend(parts.envs)) is not None:
        tell(f"compose: {lost}")
    if "callbacks" in preset:
        named = ", ".join(text.partition("(")[0] for text in preset["callbacks"])
        tell(f"compose: a scheme has no callbacks; the preset {preset_name} has {named}, which Learner takes")
    return Scheme(parts.algorithm, parts.actor, parts.storage, parts.envs, **others)


def _unknown_arguments(unknown: Mapping[str, Any], given: Mapping[str, Any], classes: Mapping[str, type[Any]]) -> str:
    """Return the message of the error about unknown arguments, with the call that hyper-parameters belong in.

    Args:
        unknown: arguments by their names.
        given: the parts, as they were given.
        classes: of the parts.
    """
    declared = {part: hyper_parameters_of(cls) for part, cls in classes.items()}
    known = {**inspect.signature(compose).parameters, **_of_scheme()}
    of_parts: dict[str, dict[str, str]] = {}
    hints = dict[str, str]()
    for name, value in unknown.items():
        hint, here, text = "", name, _short(value)
        if not any(name in names for names in declared.values()):
            hint = "" if name in OF_PARTS else here_instead(name, known, SCHEME_NAMES)
            hint = hint or _hint_of_parts(name, classes) or here_instead(name, known, SCHEME_NAMES)
            renamed = _HERE.match(hint)
            here, text = (renamed[1], text if renamed.end() == len(hint) else "...") if renamed else (name, "...")
        part = next((part for part, names in declared.items() if here in names), None)
        if part is not None and here not in known:
            of_parts.setdefault(part, {})[here] = text
        if hint:
            hints[name] = hint
    said = [hint if len(unknown) == 1 else f"{name}: {hint}" for name, hint in hints.items()]
    if not (of_parts or said):
        names = [name for name, one in known.items() if one.kind is not one.VAR_KEYWORD]
        said.append(f"there are {', '.join(names)}, and hyper-parameters of a part in a dict of it")
    if of_parts:
        call = [_argument(part, given[part], of_parts.get(part, {}), classes[part]) for part in classes]
        said.append(
            f"hyper-parameters are given in a dict of their part, which keeps those of a preset: "
            f"prl.compose({', '.join(filter(None, call))})"
        )
    return f"compose: there is no argument {', '.join(unknown)}; {'; '.join(said)}"


def _of_scheme() -> Mapping[str, inspect.Parameter]:
    """Return the arguments of schemes that are passed on: all but the factories, which are made here."""
    parameters = inspect.signature(Scheme).parameters
    return {
        name: one for name, one in parameters.items() if one.kind is one.KEYWORD_ONLY or name == "test_envs_factory"
    }


_HERE = re.compile(r"here it is (\w+)")
"""Begins a hint with the name here."""


def _hint_of_parts(name: str, classes: Mapping[str, type[Any]]) -> str:
    """Return what a hyper-parameter of another library is here, by the classes of the parts; "" if none knows it."""
    for cls in classes.values():
        if hint := hint_for(name, hyper_parameters_of(cls), cls.other_names):
            return hint.removesuffix(". ")
    return ""


def _short(value: Any) -> str:
    text = text_of(value)
    return "..." if len(text) > _LONGEST_VALUE or callable(value) else text


def _argument(kind: str, part: Any, settings: Mapping[str, str], cls: type[Any]) -> str:
    """Return an argument of a call as code, with further settings of the part; "" where it may be left out."""
    prefix = "" if kind in ("algorithm", "env") else f"{kind}="
    if isinstance(part, Factory):
        return f"{prefix}prl.{cls.__name__}.create_factory({', '.join(['...', *map('='.join, settings.items())])})"
    if part is None and not settings:
        return ""
    described = dict(part) if isinstance(part, Mapping) else {} if part is None else {"name": part}
    name = described.pop("name", None)
    shown = getattr(name, "__name__", name)
    is_alone = not settings and not described
    if isinstance(name, str) and is_alone:
        return f'{prefix}"{name}"'
    if is_alone:
        return f"{prefix}{shown}"
    named = {} if name is None else {"name": f'"{shown}"' if kind != "env" or isinstance(name, str) else str(shown)}
    pairs = [f'"{key}": {text}' for key, text in (named | dict(settings)).items()]
    return f"{prefix}{{{', '.join([*pairs, *(['...'] if described else [])])}}}"


def _described(kind: str, part: Any) -> dict[str, Any]:
    """Return a part that is no factory as a description: its name and its hyper-parameters."""
    described = dict(part) if isinstance(part, Mapping) else {"name": part}
    if kind == "env" and "name" in described:
        return described
    name = described.get("name")
    if isinstance(name, str | type):
        described["name"] = _whole_name(KINDS[kind], name)
    elif name is not None or kind in ("algorithm", "env"):
        example, maker = _EXAMPLES[kind]
        under = described.get(kind)
        way_out = "" if under is None else f'; write {{"name": {getattr(under, "__name__", repr(under))}, ...}}'
        raise TypeError(
            f"compose: {kind} must be a name such as {example!r}, {maker}, a factory, or a dict with its name and "
            f'hyper-parameters, such as {{"name": {example!r}}}, got {part!r}{way_out}'
        )
    return described


_EXAMPLES = {
    "algorithm": ("PPO", "a class"),
    "actor": ("OnPolicyActor", "a class"),
    "storage": ("GAEBuffer", "a class"),
    "env": ("CartPole-v1", "a callable"),
}


def _whole_name(kind: type[Any], part: str | type[Any]) -> str:
    """Return the name of a class, which may be given by a short name."""
    if isinstance(part, str):
        return part_named(kind, part).__name__
    if part_named(kind, part.__name__) is not part:
        raise CompositionError(
            f"compose: there is more than one class {part.__name__}; give a factory, {part.__name__}.create_factory()"
        )
    return part.__name__
