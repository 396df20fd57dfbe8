"""Reconstruction of the reset seeds that led an environment to a stored step.

An environment is reset with a seed at the beginning of a run, and again with the first episode that begins after 512
steps or more (:class:`Histories`); in between, its own generator continues. The sequence of seeds is derived from the
run's seed, and episode starts and first observations show which seed was used where, so that nothing is recorded.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytorchrl.agent.envs.copies.copies import seeds_of_copies
from pytorchrl.agent.envs.copies.histories import STEPS_OF_BLOCK
from pytorchrl.agent.envs.copies.replayable import drawn_seed, seeds_after, shows
from pytorchrl.agent.envs.plain_data import as_arrays
from pytorchrl.experiments.inspection.saved_storage import SavedStorage
from pytorchrl.scheme.seeds import seed_of_training_envs
from storages.transition import DONE, OBS

_MOST_SEEDS = 10_000_000
"""Limit of the seeds of one environment, as the checkpoint may be from an untrusted source."""


class ReenactmentError(RuntimeError):
    """Raised when an episode cannot be replayed; the message says why."""


class Origin(NamedTuple):
    """A seeded reset, from which recorded actions lead to later steps."""

    step: int
    """Number of the first step after the reset, in the ring's count."""
    seed: int
    lasting: Any = None
    """State that wrappers kept from earlier episodes; None if it is not known."""
    actions: NDArray[Any] | None = None
    """(steps, *action) as passed to the environment; None where all are in the storage."""


class EpisodeSeeds:
    """The seeded resets of one environment of a run, as far back as the storage reaches.

    Args:
        storage: of the checkpoint.
        environment: index of the environment in the vector environment.

    Raises:
        ReenactmentError: the run's environments cannot be replayed, or the checkpoint does not contain their state.
    """

    def __init__(self, storage: SavedStorage, environment: int) -> None:
        self._ring, self._environment = storage.ring, environment
        envs = storage.state["scheme"]["collector"].get("envs")
        if storage.state["config"]["train_envs"] is None or not envs:
            raise ReenactmentError(f"{storage.file} does not contain the state of the training environments")
        if "histories" not in envs:
            raise ReenactmentError("natively vectorized environments cannot replay a single one of theirs")
        if envs["steps"] is None:
            raise ReenactmentError("the environments of this run kept no actions to replay: replay_on_resume=False")
        history = as_arrays(envs["histories"][environment])
        actions = history["actions"]
        self._newest = Origin(self._ring.steps - len(actions), history["seed"], history["lasting"], actions)
        self._before = self._ring.steps - envs["steps"]
        """Number of steps in the storage before the environments' first one."""
        sequence = seed_of_training_envs(storage.state["config"]["seed"])
        first_seed = seeds_of_copies(sequence, len(envs["histories"]))[environment]
        self._seeds = _all_seeds(first_seed, history["seeds"], most=envs["steps"])
        live = np.arange(self._ring.oldest, self._ring.steps)
        begins = self._ring.columns.data(DONE)[live % self._ring.rows, environment, 0] > 0
        self._starts: NDArray[np.int64] = live[begins]
        # An environment whose state was not restored at a resume was reset with the next seed at once.
        interrupted = (self._ring.broken() & ~self._ring.ended())[:, environment]
        self._given_at_once: NDArray[np.int64] = live[interrupted] + 1

    def origins(
        self,
        step: int,
        first_observation: Callable[[int], Any],
        leads_on: Callable[[Origin], bool],
        is_put_off: bool,
    ) -> Iterator[Origin]:
        """Yield the seeded resets that may have led to a step, the most likely first; usually there is one.

        Args:
            step: number of the step.
            first_observation: resets an environment with a seed and returns the observation.
            leads_on: returns whether the first steps after a reset match the stored ones; called where the first
                observation is ambiguous.
            is_put_off: whether a wrapper may delay a seed that is due.

        Raises:
            ReenactmentError: the step was not made by the run's environments.
        """
        if step < self._before:
            raise ReenactmentError("no environment of this run made this step: it was in the storage before")
        if step >= self._newest.step:
            yield self._newest
            return
        later = np.array([self._newest.step])
        for number in range(len(self._seeds) - 2, -1, -1):
            seed = self._seeds[number]
            found = self._starts[self._fits(later, is_put_off, is_first=number == 0)]
            if len(found):
                shown = first_observation(seed)
                found = found[[shows(shown, self._observation(int(start))) for start in found]]
            if len(found) > 1 or is_put_off:
                found = found[[leads_on(Origin(int(start), seed)) for start in found]]
            yield from (Origin(int(start), seed) for start in found[::-1] if start <= step)
            later = found[found > step]
            if not len(later):
                return

    def _fits(self, later: NDArray[np.int64], is_put_off: bool, is_first: bool) -> NDArray[np.bool_]:
        """Return (starts,), whether a seed may have been used there, if the next one was used at one of ``later``."""
        made = self._starts - self._before
        due = -(-(made + STEPS_OF_BLOCK) // STEPS_OF_BLOCK) * STEPS_OF_BLOCK
        following = np.searchsorted(made, due, side="right")
        starts = np.append(self._starts, self._ring.steps)
        fits = np.isin(starts[following], later)
        at_once = later[np.isin(later, self._given_at_once)]
        latest = later.max() if is_put_off else at_once.max() if len(at_once) else None
        if latest is not None:
            fits |= (starts[following] <= latest) if is_put_off else (self._starts < latest)
        chosen: NDArray[np.bool_] = fits & (self._starts < later.max()) & ((made == 0) == is_first) & (made >= 0)
        return chosen

    def _observation(self, step: int) -> Any:
        row = np.array([step * self._ring.envs + self._environment])
        observation = self._ring.gather(row, {OBS})[OBS]
        if isinstance(observation, Mapping):
            return {name: part[0] for name, part in observation.items()}
        return observation[0]


def _all_seeds(first: int, state: Mapping[str, Any], most: int) -> list[int]:
    """Return all seeds that an environment was reset with, up to the saved state of the seeds' generator.

    If that state is not reached, as in a run whose environments were recreated after an error, only the first is known.
    """
    seeds, found = seeds_after(first), [first]
    for _ in range(min(most // STEPS_OF_BLOCK + most % STEPS_OF_BLOCK + 2, _MOST_SEEDS)):
        if seeds.bit_generator.state == state:
            return found
        found.append(drawn_seed(seeds))
    return [first]
