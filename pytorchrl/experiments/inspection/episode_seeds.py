"""From which seed an environment came to a stored step: found anew of the run's seed and of where episodes begin.

An environment is reset with a seed at the beginning of a run, and again with the first episode that begins after 512
steps or more (:class:`Histories`); between them, its own generator goes on. All these seeds follow from the run's, and
steps and first observations say which one was given where, so that nothing has to be recorded.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytorchrl.agent.envs.copies.action_log import STEPS_OF_BLOCK
from pytorchrl.agent.envs.copies.copies import seeds_of_copies
from pytorchrl.agent.envs.copies.replayable import drawn_seed, seeds_after, shows
from pytorchrl.agent.envs.plain_data import as_arrays
from pytorchrl.experiments.inspection.saved_storage import SavedStorage
from pytorchrl.scheme.seeds import seed_of_training_envs
from storages.transition import DONE, OBS

_MOST_SEEDS = 10_000_000
"""Of one environment, in a state that may not have been saved here."""


class ReenactmentError(RuntimeError):
    """An episode cannot be played again; the text says why."""


class Origin(NamedTuple):
    """A reset with a seed, from which actions lead to later steps."""

    step: int
    """Number of the first step after it, as the storage's ring counts."""
    seed: int
    lasting: Any = None
    """What the environment kept from earlier episodes; None where that is not known."""
    actions: NDArray[Any] | None = None
    """(steps, *action) as the environment took them; None where the storage has them all."""


class EpisodeSeeds:
    """The resets with a seed of one environment of a run, as far as the storage reaches back.

    Args:
        storage: as the checkpoint has it.
        environment: index of the environment in its vector.

    Raises:
        ReenactmentError: the run's environments repeat nothing, or the checkpoint does not say where they are.
    """

    def __init__(self, storage: SavedStorage, environment: int) -> None:
        self._ring, self._environment = storage.ring, environment
        envs = storage.state["scheme"]["collector"].get("envs")
        if storage.state["config"]["train_envs"] is None or not envs:
            raise ReenactmentError(f"{storage.file} does not say where the environments of training are")
        if "histories" not in envs:
            raise ReenactmentError("vector environments that step many of themselves cannot repeat a single one")
        if envs["steps"] is None:
            raise ReenactmentError("the environments of this run repeat nothing: replay_on_resume=False")
        history = as_arrays(envs["histories"][environment])
        actions = history["actions"]
        self._newest = Origin(self._ring.steps - len(actions), history["seed"], history["lasting"], actions)
        self._before = self._ring.steps - envs["steps"]
        """Steps in the storage before the environments made their first one."""
        sequence = seed_of_training_envs(storage.state["config"]["seed"])
        first_seed = seeds_of_copies(sequence, len(envs["histories"]))[environment]
        self._seeds = _all_seeds(first_seed, history["seeds"], most=envs["steps"])
        live = np.arange(self._ring.oldest, self._ring.steps)
        begins = self._ring.columns.data(DONE)[live % self._ring.rows, environment, 0] > 0
        self._starts: NDArray[np.int64] = live[begins]
        # An environment that did not come back at a resume was given a seed at once.
        interrupted = (self._ring.broken() & ~self._ring.ended())[:, environment]
        self._given_at_once: NDArray[np.int64] = live[interrupted] + 1

    def origins(
        self,
        step: int,
        first_observation: Callable[[int], Any],
        leads_on: Callable[[Origin], bool],
        is_put_off: bool,
    ) -> Iterator[Origin]:
        """Those that may have led to a step, the likeliest first; most often there is one.

        Args:
            step: its number.
            first_observation: resets an environment with a seed.
            leads_on: whether what is stored after a reset follows from it, for some steps; asked where the first
                observation does not tell.
            is_put_off: whether a wrapper may put off a seed that is due.

        Raises:
            ReenactmentError: the environments did not make the step.
        """
        if step < self._before:
            raise ReenactmentError("no environment of this run made this step: the storage was filled with it")
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
        """(starts,): where a seed may have been given, if the next was given at one of some later steps."""
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
    """All seeds that an environment was given, up to where the generator of its later ones has come.

    Of a run whose environments were made anew after an error, they are not known: then there is the first alone.
    """
    seeds, found = seeds_after(first), [first]
    for _ in range(min(most // STEPS_OF_BLOCK + most % STEPS_OF_BLOCK + 2, _MOST_SEEDS)):
        if seeds.bit_generator.state == state:
            return found
        found.append(drawn_seed(seeds))
    return [first]
