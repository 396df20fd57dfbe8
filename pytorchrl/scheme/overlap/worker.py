"""The main function of a collector process."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.envs.vec_env import VecEnv
from pytorchrl.scheme.collector import Collector
from pytorchrl.scheme.overlap.changes import ChangeHistory, ChangesAfter
from pytorchrl.scheme.overlap.link import Answer, Finished, Laid, LearnerGoneError, Link, Made
from pytorchrl.scheme.overlap.shared_arrays import SharedArrays
from pytorchrl.scheme.overlap.step_slots import StepLayout, StepSlots, arrays_of, layout_of
from pytorchrl.scheme.overlap.weight_versions import WeightVersions
from storages.component.factory import Factory
from storages.storage import Storage
from storages.transition import SKIPPED, Sample


@dataclass(frozen=True)
class WorkerParts:
    """The factories and shared memory of a collector process."""

    algo_factory: Factory[Algorithm]
    actor_factory: Factory[Actor]
    envs_factory: Factory[VecEnv]
    """Of its own environments."""
    weights: SharedArrays
    steps: SharedArrays


class CollectionArguments(NamedTuple):
    """Arguments with which collection begins."""

    lead: int
    """Steps by which collection may be ahead of the updates."""
    slots: int
    """Capacity of the shared memory in steps."""
    versions: int
    """Number of weight versions in memory."""
    workers: int
    """Number of collector processes."""
    position: int
    """Index of its first environment among all environments."""
    num_envs: int
    """Number of environments of all processes."""
    on_policy: bool
    """Whether the storage is on-policy."""
    info_keys: Sequence[str]
    """Infos that are stored."""
    env_seed: np.random.SeedSequence
    explorer_seed: np.random.SeedSequence
    noise_seed: np.random.SeedSequence


def serve(link: Link, parts: WorkerParts) -> None:
    """Make environments, and collect in them until the learner stops the process or has ended."""
    try:
        try:
            envs = parts.envs_factory()
        except Exception as error:  # raised again in the learner's process
            link.send_error(error)
            return
        try:
            link.send(Made(_description(envs)))
            _Worker(link, parts, envs).run()
        finally:
            envs.close()
    except LearnerGoneError:
        return


class _StoppedError(Exception):
    """Raised when the learner stops the process."""


class _Worker:
    """Acts with the weights that the learner publishes, and writes steps into shared memory."""

    _arguments: CollectionArguments
    _changes: ChangeHistory
    _weights: WeightVersions
    _writer: "_StepWriter"
    _algorithm: Algorithm
    _collector: Collector

    def __init__(self, link: Link, parts: WorkerParts, envs: VecEnv) -> None:
        self._link, self._parts, self._envs = link, parts, envs
        self._position = 0
        """Number of steps made since the run began."""
        self._version: int | None = None
        """Version of the current weights."""
        self._restored: tuple[int | None, Mapping[str, Any] | None] | None = None
        """Weight version when the run was saved, and the observation statistics, updated since that version."""
        self._has_failed = False

    def run(self) -> None:
        """Make steps and execute commands, until the learner stops the process."""
        with suppress(_StoppedError):
            while True:
                if self._link.wait():
                    self._follow_command()
                elif not self._has_failed:
                    self._make_step()

    def begin(self, arguments: CollectionArguments) -> None:
        """Make the algorithm and the collector, and begin episodes in all environments."""
        parts, envs = self._parts, self._envs
        actor = parts.actor_factory("cpu", envs)
        algorithm = parts.algo_factory("cpu", actor, envs)
        algorithm.seed(arguments.noise_seed)
        self._changes = ChangeHistory(arguments.lead)
        self._weights = WeightVersions(actor, arguments.lead, arguments.versions)
        self._weights.map(parts.weights)
        rows = slice(arguments.position, arguments.position + envs.num_envs)
        self._writer = _StepWriter(arguments, rows, self._agree_on)
        self._arguments, self._algorithm = arguments, algorithm
        self._collector = Collector(envs, algorithm, cast("Storage", self._writer))
        # The learner normalises rewards before it rounds them.
        self._collector.rounds_rewards = False
        self._collector.explore_among(arguments.num_envs, arguments.position)
        self._collector.seed(arguments.explorer_seed)
        self._collector.reset(arguments.env_seed)

    def state(self, _: None) -> dict[str, Any]:
        """Return the state that determines the next steps."""
        normalization = self._algorithm.actor.normalization
        now = (self._version, None if normalization is None else normalization.state_dict())
        version, counted = self._restored or now
        return {
            "position": self._position,
            "version": version,
            "normalization": counted,
            "random": self._algorithm.random_state(),
            "collector": self._collector.state_dict(),
        }

    def load(self, state: Mapping[str, Any]) -> list[int]:
        """Restore the state returned by :meth:`state`; returns the environments whose running episodes are lost."""
        self._position = state["position"]
        self._link.written[self._link.number] = self._position
        self._algorithm.load_random_state(state["random"])
        self._version, self._restored = None, (state["version"], state["normalization"])
        return self._collector.load_state_dict(state["collector"])

    def restart(self, at: tuple[int, np.random.SeedSequence, np.random.SeedSequence]) -> None:
        """Begin new episodes after the state was lost; ``at`` is (position, seed of environments, of explorer)."""
        self._position, env_seed, explorer_seed = at
        self._link.written[self._link.number] = self._position
        self._version = self._restored = None
        self._collector.seed(explorer_seed)
        self._collector.reset(env_seed)

    def take_changes(self, sets: Sequence[ChangesAfter]) -> None:
        """Take the changed hyper-parameters that further steps are made with."""
        self._changes.take(sets)

    def map_slots(self, layout: StepLayout) -> None:
        """Map the memory for steps that the learner has allocated."""
        self._writer.slots = self._slots_of(layout)

    def _follow_command(self) -> None:
        name, argument = self._received()
        try:
            self._link.send(Answer(getattr(self, name)(argument)))
        except LearnerGoneError:
            raise
        except Exception as error:  # raised again in the learner's process
            self._link.send_error(error)
        # Wait: until it sends "go on", the learner may change the counts that both processes share.
        self._received()

    def _make_step(self) -> None:
        link, collector, position = self._link, self._collector, self._position
        self._follow_weights(position)
        # Schedules count the transitions of all collector processes. Those of the steps ahead are taken as complete, so
        # that the count does not depend on how quick the other processes are.
        collector.steps = position * self._arguments.num_envs - self._weights.skipped_before(position)
        self._writer.position = position
        try:
            finished = collector.step()
        except (LearnerGoneError, _StoppedError):
            raise
        except Exception as error:  # raised again in the learner's process
            self._has_failed = True
            link.send_error(error, by_step=True)
            link.has_stepped.release()
            return
        collector.take_shaped_returns()
        if finished:
            link.send(Finished(position, [episode.state_dict() for episode in finished]))
        self._writer.count_finished(link.number, len(finished))
        self._position += 1
        link.written[link.number] = self._position
        link.has_stepped.release()

    def _follow_weights(self, position: int) -> None:
        changes = self._changes.newest_for(position)
        if changes is not None:
            self._algorithm.take_changes(changes)
        version = self._weights.version_for(position)
        if version == self._version:
            return
        progress = self._weights.load(version)
        self._algorithm.set_progress(progress.steps, progress.target_steps)
        self._collector.set_target(progress.target_steps)
        if self._restored is not None:
            version_before, counted = self._restored
            normalization = self._algorithm.actor.normalization
            if version_before == version and counted is not None and normalization is not None:
                normalization.load_state_dict(counted)
        self._version, self._restored = version, None

    def _agree_on(self, layout: StepLayout) -> StepSlots:
        """Send the layout of the first step; returns the memory for steps once the learner has allocated it."""
        self._link.send(Laid(layout))
        return self._slots_of(self._received())

    def _slots_of(self, layout: StepLayout) -> StepSlots:
        arguments = self._arguments
        return StepSlots(
            layout, arguments.slots, arguments.num_envs, arguments.workers, self._parts.steps, is_maker=False
        )

    def _received(self) -> Any:
        message = self._link.receive()
        if message is None:
            raise _StoppedError
        return message


class _StepWriter:
    """Stands in for the storage in a collector process: writes steps into shared memory.

    Args:
        arguments: arguments with which collection begins.
        rows: indices of this process's environments, among all.
        agree_on: returns the memory for steps of the layout of the first step.
    """

    def __init__(
        self, arguments: CollectionArguments, rows: slice, agree_on: Callable[[StepLayout], StepSlots]
    ) -> None:
        self.on_policy = arguments.on_policy
        self.info_keys = arguments.info_keys
        self.position = 0
        """Number of the current step."""
        self.slots: StepSlots | None = None
        self._rows = rows
        self._agree_on = agree_on

    def insert_transition(self, sample: Sample) -> None:
        """Write a step (E, ...) of this process's environments."""
        arrays = arrays_of(sample)
        if self.slots is None:
            self.slots = self._agree_on(layout_of(arrays))
        self.slots.write(self.position, self._rows, arrays)

    def insert_masked(self, sample: Sample, mask: NDArray[np.bool_]) -> None:
        """Write a step of this process's environments, and which of them made a transition."""
        self.insert_transition({**sample, SKIPPED: ~mask[:, None]})

    def count_finished(self, worker: int, episodes: int) -> None:
        """Record how many episodes ended with the step that was written."""
        assert self.slots is not None
        self.slots.finished[self.slots.slot(self.position), worker] = episodes


def _description(envs: VecEnv) -> dict[str, Any]:
    """Return the attributes of the environments that the learner reads."""
    names = (
        *("observation_space", "action_space", "stacked_frames", "skips_steps"),
        *("is_wrapped", "env_name", "env_spec"),
    )
    return {name: getattr(envs, name) for name in names}
