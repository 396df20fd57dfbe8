"""``python -m pytorchrl env``: describe and check an environment."""

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import gymnasium as gym
import numpy as np
import tyro
from gymnasium import spaces

from pytorchrl.agent.actors.encoders.choice import described
from pytorchrl.agent.algorithms import Algorithm
from pytorchrl.agent.envs.copies.making import bare_env, check_id, make_env
from pytorchrl.agent.envs.games.atari_envs import described_preprocessing, preprocessed, whole_games
from pytorchrl.agent.envs.native.native_making import Backend, is_native
from pytorchrl.agent.envs.random_play import (
    RandomPlay,
    VectorPlay,
    env_warnings,
    format_space,
    layers_of,
    play_at_random,
    play_vector_at_random,
    time_limit_of,
)
from pytorchrl.agent.envs.spaces import UnsupportedSpaceError
from pytorchrl.agent.envs.spaces import check_action_space as check_actions_of_envs
from pytorchrl.agent.envs.vec_env import VecEnv
from pytorchrl.agent.envs.wrappers.join_actions import JoinActions
from pytorchrl.commands.composition.parts import names_of, part_named, value_of
from pytorchrl.commands.shared import Imports, check_counts, check_seed, print_facts
from pytorchrl.experiments.runs.user_modules import factory_function, import_modules
from pytorchrl.terminal import tell
from storages.component.factory import Factory


def env(
    env_id: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ID")],
    env_kwargs: str = "{}",
    episodes: int = 10,
    longest: int = 10_000,
    seed: int = 0,
    imports: Imports = (),
    vectorization_mode: Literal["vector_entry_point"] | None = None,
    backend: Backend = "gymnasium",
    num_envs: int = 16,
    preprocessing: bool = True,
) -> None:
    """Describe an environment: its spaces, the returns of random actions, its speed, and what is wrong with it.

    Args:
        env_id: a gymnasium id, or a class of an imported module.
        env_kwargs: its arguments, as Python or JSON writes a dict: '{"max_episode_steps": 100}'.
        episodes: number of episodes of random actions.
        longest: largest number of steps of an episode.
        seed: of the first episode and of the actions.
        imports: modules to import first.
        vectorization_mode: "vector_entry_point" describes gymnasium's vector environment of the id.
        backend: the library that makes the vector environment: "gymnasium", "envpool" or "ale".
        num_envs: copies in a vector environment; a class that takes num_envs counts as one.
        preprocessing: describe a game of Atari as `train` learns it, preprocessed; --no-preprocessing, with raw frames.
    """
    import_modules(imports)
    arguments = _arguments(env_kwargs)
    check_counts(episodes=episodes, longest=longest, num_envs=num_envs)
    check_seed(seed)
    made_by = factory_function(env_id)
    made_of = made_by or env_id
    if is_native(made_of, vectorization_mode, backend):
        settings: dict[str, Any] = {"vectorization_mode": vectorization_mode, "backend": backend}
        factory = VecEnv.create_factory(made_of, num_envs, env_kwargs=arguments, **settings)
        _describe_vector(env_id, factory, seed, episodes)
        return
    if made_by is None:
        check_id(env_id, "env")

    raw = VecEnv.create_factory(made_of, env_kwargs=arguments)
    factory = preprocessed(raw) if preprocessing else raw
    parts = factory.hyper_parameters

    def make(wrappers: Sequence[Any]) -> gym.Env[Any, Any]:
        return make_env(parts["env"], dict(parts["env_kwargs"] or {}), wrappers)[0]

    # Returns of lives with clipped rewards could be compared with nothing.
    played = whole_games(parts["wrappers"])
    in_games = "" if len(played) == len(parts["wrappers"]) else ", in whole games without clipped rewards"
    one = make(parts["wrappers"])
    try:
        of_games = {} if factory is raw else {"preprocessing": described_preprocessing(factory)}
        print_facts(env_id, _made(one) | of_games)
        play = play_at_random(lambda: make(played), episodes, longest, seed)
        print_facts(f"Random actions{in_games}", _played(play))
        print_facts("Algorithms", _algorithms_for(one, play.obeyed_mask))
        complaints = env_warnings(lambda: bare_env(parts["env"], dict(parts["env_kwargs"] or {})))
    finally:
        one.close()
    checker = f"gymnasium's checker{'' if play.obeyed_mask is None else ', whose random actions ignore the mask,'}"
    tell(f"{checker} found no problem." if not complaints else f"{checker} warns:")
    for complaint in complaints:
        tell(f"- {complaint}")


def _describe_vector(env_id: str, factory: Factory[VecEnv], seed: int, episodes: int) -> None:
    """Describe a vector environment, whose copies cannot be stepped one by one."""
    with factory() as envs:
        begins = (
            "in the step after an episode's end, which makes no transition"
            if envs.skips_steps
            else "in the step that ends the episode"
        )
        facts = {
            "observations": format_space(envs.observation_space),
            "networks read": described(envs.observation_space, "auto"),
            "actions": format_space(envs.action_space),
            "environments": str(envs.num_envs),
            "autoreset": begins,
            "stacked frames": str(envs.stacked_frames or "none"),
        }
        print_facts(env_id, facts)
        print_facts("Random actions", _played_vector(play_vector_at_random(envs, episodes, seed)))
        print_facts("Algorithms", _algorithms(envs.observation_space, envs.action_space))


def _played_vector(play: VectorPlay) -> dict[str, str]:
    returns, lengths = np.array(play.returns), np.array(play.lengths)
    speed = play.steps_per_second
    played = {
        "speed": f"{speed:,.0f} steps/s; a million take {1e6 / speed:,.1f} s",
        "reward": f"from {play.rewards[0]:g} to {play.rewards[1]:g}",
    }
    if not len(returns):
        return {"episodes": "none ended"} | played
    return {
        "episodes": str(len(returns)),
        "return": f"{returns.mean():.2f} on average, from {returns.min():.2f} to {returns.max():.2f}",
        "length": f"{lengths.mean():.1f} on average, from {lengths.min():,} to {lengths.max():,}",
    } | played


def _arguments(text: str) -> dict[str, Any]:
    try:
        arguments = json.loads(text)
    except ValueError:
        arguments = value_of(text)
    if not isinstance(arguments, dict):
        raise ValueError(f"env: env_kwargs must be a dict such as '{{\"max_episode_steps\": 100}}', got {text!r}")
    return arguments


def _made(env: gym.Env[Any, Any]) -> dict[str, str]:
    """Return what is known of an environment before its first reset."""
    limit = time_limit_of(env)
    metadata = env.metadata
    fps = metadata.get("render_fps")
    modes = ", ".join(map(str, metadata.get("render_modes") or [])) or "none"
    return {
        "observations": format_space(env.observation_space),
        "networks read": described(env.observation_space, "auto"),
        "actions": format_space(env.action_space),
        "time limit": "none by a wrapper or the id" if limit is None else f"{limit:,} steps",
        "wrappers": " of ".join(layers_of(env)),
        "render modes": f"{modes}{f', {fps} frames per second' if fps else ''}",
    }


def _played(play: RandomPlay) -> dict[str, str]:
    returns, lengths = np.array(play.returns), np.array(play.lengths)
    running = len(returns) - play.terminated - play.truncated
    ends = {"terminated": play.terminated, "truncated": play.truncated, "stopped at --longest": running}
    speed = play.steps_per_second
    hours = 1e6 / speed / 3_600
    outside = {"outside the bounds": "\n".join(play.outside)} if play.outside else {}
    return {
        "episodes": f"{len(returns)}: {', '.join(f'{number} {how}' for how, number in ends.items() if number)}",
        "return": f"{returns.mean():.2f} on average, deviation {returns.std():.2f}, from {returns.min():.2f} to "
        f"{returns.max():.2f}",
        "length": f"{lengths.mean():.1f} on average, from {lengths.min():,} to {lengths.max():,}",
        "reward": f"from {play.rewards[0]:g} to {play.rewards[1]:g}",
        "speed": f"{speed:,.0f} steps/s; a million take {f'{hours:.1f} h' if hours >= 1 else f'{hours * 60:.1f} min'}",
        "numbers in the last info": ", ".join(play.infos) or "none",
        **outside,
        "deterministic": "yes, given the seed and the actions"
        if play.differs_at is None
        else f"no: with the same seed and actions, another copy differed at step {play.differs_at}; a resumed run "
        f"begins new episodes",
    }


def _algorithms_for(env: gym.Env[Any, Any], mask: str | None) -> dict[str, str]:
    """As :func:`_algorithms`, with the wrapper that the environment's actions need."""
    observations = env.observation_space
    try:
        if isinstance(env.action_space, spaces.Dict | spaces.Tuple):
            joined = JoinActions(env).action_space
            wrapper = f"JoinActions, with which actions are {format_space(joined)}"
            return {"wrapper": wrapper} | _algorithms(observations, joined)
        check_actions_of_envs(env.action_space, "VecEnv")
    except UnsupportedSpaceError as error:
        return {"compatible": f"none: {error}"}
    masked = {}
    if mask is not None:
        of_observations = isinstance(observations, spaces.Dict) and "action_mask" in observations.spaces
        wrapper = "" if of_observations else "the wrapper ObserveActionMask and "
        masked = {
            "action mask": f"{mask}, obeyed by the random actions above, and in training with {wrapper}"
            'action_mask="action_mask" of the actor'
        }
    return masked | _algorithms(observations, env.action_space)


def _algorithms(observations: gym.Space[Any], actions: gym.Space[Any]) -> dict[str, str]:
    """Return the names of algorithms that support the spaces, and of the others, with the reason."""
    fitting: list[str] = []
    others: dict[str, list[str]] = {}
    envs: Any = SimpleNamespace(observation_space=observations, action_space=actions)
    for name in names_of(Algorithm):
        try:
            part_named(Algorithm, name).check_spaces(envs)
            fitting.append(name)
        except UnsupportedSpaceError as error:
            reason = str(error).removeprefix(name).strip().replace(f", the environments have {actions}", "")
            others.setdefault(reason.replace(f", got {observations}", ""), []).append(name)
    cannot = "\n".join(f"{', '.join(names)}: {reason}" for reason, names in others.items())
    return {"compatible": ", ".join(fitting) or "none"} | ({"incompatible": cannot} if cannot else {})
