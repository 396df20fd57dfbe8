"""Replaying a stored episode in its environment, from its seed and its actions, to record images."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray

from pytorchrl.agent.actors.codec import make_codec
from pytorchrl.agent.envs.copies.lasting_state import layers_that_last, layers_with, load_lasting_state
from pytorchrl.agent.envs.copies.making import make_env
from pytorchrl.agent.envs.copies.replayable import shows
from pytorchrl.agent.envs.mujoco import follow_robot, render
from pytorchrl.agent.envs.spaces import EnvActions
from pytorchrl.agent.envs.vec_env import VecEnv
from pytorchrl.experiments.inspection.episode_seeds import EpisodeSeed, EpisodeSeeds, ReenactmentError
from pytorchrl.experiments.inspection.pictures import picture_of
from pytorchrl.experiments.inspection.saved_storage import SavedStorage
from pytorchrl.experiments.inspection.transitions import StoredTransitions
from pytorchrl.experiments.recordings.filming import FRAMES_PER_SECOND, takes_render_mode
from pytorchrl.experiments.runs.composition import made_of, refuse_to_import
from pytorchrl.experiments.runs.user_modules import factory_function, missing_modules_named
from pytorchrl.scheme.compatibility import CompositionError
from storages.component.factory import Factory
from storages.transition import ACT, DONE, OBS, OBS2, REW

_MOST_ATTEMPTS = 16
"""Limit of the seeds that are tried where observations do not determine which one was used."""
_STEPS_TO_TELL = 64
"""Number of matching steps after which a seeded reset is accepted."""


@dataclass(frozen=True)
class Reenactment:
    """A replayed episode."""

    frames: list[NDArray[np.uint8]]
    """(height, width, 3) each, after the reset and after each step; empty if the environment does not render."""
    frames_per_second: int
    moment: int
    """Index of the frame before the transition; the next frame is after it."""
    differs_at: int | None
    """The first step of the episode, counted from 0, at which the environment deviates from the stored steps; negative
    for a step of an earlier episode. The frames end with it. None if there is no deviation."""
    difference: str
    """The part that deviates: "observation", "reward" or "end"; empty if nothing does."""


def reenact(run: str | os.PathLike[str], row: int, envs: Factory[VecEnv] | None = None) -> Reenactment:
    """Replay the episode of a stored transition in a new copy of the environment that renders.

    The environment is reset with the seed that led to the episode, and the stored actions are repeated; observations
    and rewards are compared with the stored ones. This needs no recording during training: seeds are derived from the
    run's seed, and actions are in the storage. As environments are seeded about every 512 steps, about as many of the
    oldest stored steps cannot be replayed.

    Args:
        run: the run folder, or a checkpoint.
        row: the transition's number, as in the field INDICES of batches.
        envs: of the training environments, if they cannot be built from ``config.json``.

    Raises:
        CheckpointError: there is no checkpoint, it is damaged, or it contains no storage.
        CompositionError: the environments are defined in a script; pass them as ``envs``.
        ReenactmentError: the seed is not known; the message says why.
        RuntimeError: MuJoCo finds no OpenGL.
        ValueError: the row is not stored.
    """
    storage = SavedStorage.read(run)
    rows = StoredTransitions(storage).episode_of(row)
    if envs is None:
        with missing_modules_named(storage.state["config"]):
            envs = _envs_of(storage)
    factory = envs
    environment = row % storage.ring.envs
    seeds = EpisodeSeeds(storage, environment)
    made, kwargs = factory.hyper_parameters["env"], dict(factory.hyper_parameters["env_kwargs"] or {})
    if isinstance(made, str) or takes_render_mode(made):
        kwargs["render_mode"] = "rgb_array"
    env, _ = make_env(made, kwargs, factory.hyper_parameters["wrappers"])
    follow_robot(env)
    try:
        play = _Play(storage, rows, row, env)
        is_put_off = bool(layers_with(env, "goes_on_at_reset"))
        best: Reenactment | None = None
        origins = seeds.origins(play.first, lambda seed: env.reset(seed=seed)[0], play.reaches, is_put_off)
        for _, origin in zip(range(_MOST_ATTEMPTS), origins, strict=False):
            played = play(origin)
            if played.differs_at is None:
                return played
            if best is None or played.differs_at > (best.differs_at or 0):
                best = played
        if best is None:
            raise ReenactmentError(
                f"the last seed before the episode of row {row} was given before the oldest stored step, and the "
                f"actions since then have been overwritten"
            )
        return best
    finally:
        env.close()


class _Play:
    """Replays a stored episode.

    Args:
        storage: of the checkpoint.
        rows: numbers of the episode's transitions.
        row: number of the transition of interest.
        env: the environment.
    """

    def __init__(self, storage: SavedStorage, rows: NDArray[np.int64], row: int, env: gym.Env[Any, Any]) -> None:
        ring = storage.ring
        self._storage, self._ring, self._env = storage, ring, env
        self._environment = row % ring.envs
        self.first, self._last, self._step = (int(one) // ring.envs for one in (rows[0], rows[-1], row))
        """Numbers of the episode's first and last stored steps, and of the transition's step."""
        self._begins = bool(ring.gather(rows[:1], {DONE})[DONE][0, 0])
        # State that wrappers keep over episodes, such as a mean of returns, is not known for older steps.
        is_normalised = storage.state["config"].get("normalize_rewards") is not None
        self._compares_rewards = not is_normalised and not layers_that_last(env)

    def __call__(self, origin: EpisodeSeed) -> Reenactment:
        """Replay from a seeded reset to the episode's last step."""
        return self._played(origin, self._last, films=True)

    def reaches(self, origin: EpisodeSeed) -> bool:
        """Whether the first steps after a seeded reset match the stored ones."""
        return self._played(origin, min(self._last, origin.step + _STEPS_TO_TELL), films=False).differs_at is None

    def _played(self, origin: EpisodeSeed, last: int, films: bool) -> Reenactment:
        env = self._env
        if origin.lasting is not None:
            load_lasting_state(layers_that_last(env), origin.lasting)
        observation, _ = env.reset(seed=origin.seed)
        actions, stored = self._actions(origin, last), self._stored(origin, last)
        begun, difference, step = origin.step, "", origin.step
        # Earlier episodes are not shown, if the start of this one is known.
        shown_from = sys.maxsize if not films else self.first if self._begins else origin.step
        frames = self._pictures(observation) if origin.step >= shown_from else []
        for step in range(origin.step, last + 1):
            place = step - max(origin.step, self._ring.oldest)
            if place >= 0 and not shows(observation, _part(stored[OBS], place)):
                difference = "observation"
                break
            observation, reward, terminated, truncated, _ = env.step(actions[step - origin.step])
            is_over = bool(terminated or truncated)
            frames += self._pictures(observation) if step >= shown_from else []
            difference = self._difference(stored, place, observation, float(reward), is_over) if place >= 0 else ""
            if difference:
                break
            if is_over and step < last:
                observation, _ = env.reset()
                begun, frames = step + 1, self._pictures(observation) if step + 1 >= shown_from else []
        return Reenactment(
            frames,
            int(env.metadata.get("render_fps", FRAMES_PER_SECOND)),
            moment=self._step - begun,
            differs_at=step - (self.first if self._begins else begun) if difference else None,
            difference=difference,
        )

    def _difference(self, stored: Mapping[str, Any], place: int, observation: Any, reward: float, is_over: bool) -> str:
        """Return what deviates from the stored step, as :attr:`Reenactment.difference`."""
        if is_over != bool(stored["ended"][place]):
            return "end"
        if self._compares_rewards and np.float32(reward) != np.float32(stored[REW][place, 0]):
            return "reward"
        return "" if shows(observation, _part(stored[OBS2], place)) else "observation"

    def _actions(self, origin: EpisodeSeed, last: int) -> NDArray[Any]:
        """Return the actions since a reset, (steps, *action), as passed to the environment."""
        if origin.actions is not None:
            return origin.actions
        space = self._env.action_space
        codec = make_codec(space, torch.device("cpu"), scaled=False)
        actions = self._ring.gather(self._rows(origin.step, last), {ACT})[ACT]
        return EnvActions(space)(codec.to_env(torch.from_numpy(actions)).numpy())

    def _stored(self, origin: EpisodeSeed, last: int) -> dict[str, Any]:
        """Return the stored fields of the steps since a reset, (steps, ...)."""
        first = max(origin.step, self._ring.oldest)
        fields = self._ring.gather(self._rows(first, last), {OBS, OBS2, REW})
        ended = self._ring.ended()[first - self._ring.oldest : last + 1 - self._ring.oldest, self._environment]
        return fields | {"ended": ended}

    def _rows(self, first: int, last: int) -> NDArray[np.int64]:
        return np.arange(first, last + 1) * self._ring.envs + self._environment

    def _pictures(self, observation: Any) -> list[NDArray[np.uint8]]:
        """Return the rendered image, else the observation if it is an image; otherwise an empty list."""
        rendered = picture_of(render(self._env)) if self._env.render_mode == "rgb_array" else None
        picture = picture_of(observation, self._ring.stacked) if rendered is None else rendered
        return [] if picture is None else [picture]


def _envs_of(storage: SavedStorage) -> Factory[VecEnv]:
    described = storage.state["config"]["train_envs"]
    if described is None:
        raise ReenactmentError(f"the run of {storage.file} had no training environments")
    way_out = "film the episode in the script that defines it: prl.film_transition(run, row, envs=...)"
    refuse_to_import(described, way_out)
    made = described["hyper_parameters"].get("env")
    if isinstance(made, Mapping) and factory_function(str(made["callable"])) is None:
        raise CompositionError(
            f"the environments of the run are made by {made['callable']}; name the module that defines it by --import, "
            f"or {way_out}"
        )
    factory: Factory[VecEnv] = made_of(described)
    return factory


def _part(observations: Any, place: int) -> Any:
    if isinstance(observations, Mapping):
        return {name: part[place] for name, part in observations.items()}
    return observations[place]
