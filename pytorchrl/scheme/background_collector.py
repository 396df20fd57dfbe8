"""A collector whose steps are made in one thread, and stored and learnt from in another."""

from collections import deque
from copy import deepcopy
from typing import Any, NamedTuple, cast

from torch import Tensor

from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.scheme.collector import Collector, Episode, count_observations
from storages.storage import Storage
from storages.transition import OBS, Sample


class _Step(NamedTuple):
    """A step of all environments that is not stored yet."""

    sample: Sample
    finished: list[Episode]
    shaped_returns: list[float]
    steps: int
    """Environment transitions in all, with this step."""
    episodes: int
    """Episodes that ended in all, with this step."""


class _Published(NamedTuple):
    """The weights and settings with which actions are chosen after updates."""

    weights: dict[str, Tensor]
    changes: dict[str, Any]
    """Changed hyper-parameters."""
    progress: tuple[int, int]
    """Steps of the run, and its target."""


class BackgroundCollector:
    """Stores the steps that another thread makes, with weights of its own, while this one trains.

    The thread that acts calls ``act``'s methods and :meth:`make_step`, and the one that trains all others. They share a
    queue of steps and the newest weights, which the acting thread takes before it chooses actions: it never waits for
    an update, and never acts with weights that an update has changed in part.

    Args:
        act: makes the steps; its algorithm and storage are replaced.
        acting: the algorithm that it acts with.
        algorithm: that is trained.
        storage: gets the transitions.
    """

    def __init__(self, act: Collector, acting: Algorithm, algorithm: Algorithm, storage: Storage) -> None:
        self.act, self.acting, self.algorithm, self.storage = act, acting, algorithm, storage
        self.steps = 0
        """Environment transitions that were stored."""
        self.episodes = 0
        """Episodes that ended so far, as stored."""
        self._queue: deque[_Step] = deque()
        self._outbox = _Outbox(storage)
        act.algorithm, act.storage = acting, cast("Storage", self._outbox)
        self._shaped: list[float] = []
        self._version = self._present_version()
        """Updates and changed hyper-parameters of what was published last."""
        self._published: deque[_Published] = deque(maxlen=1)

    # In the thread that acts

    def take_weights(self) -> None:
        """Act with the newest weights from now on."""
        if self._published:
            published = self._published.pop()
            self.acting.set_weights(published.weights)
            self.acting.take_changes(published.changes)
            self.acting.set_progress(*published.progress)

    def make_step(self) -> None:
        """Step the environments, and hand the step over."""
        act = self.act
        finished = act.step()
        self._queue.append(_Step(self._outbox.take(), finished, act.take_shaped_returns(), act.steps, act.episodes))

    # In the thread that trains

    @property
    def steps_ahead(self) -> int:
        """Steps of all environments that were made and not stored yet."""
        return len(self._queue)

    def step(self) -> list[Episode]:
        """Store the next step; returns the environments' own episodes that ended."""
        step = self._queue.popleft()
        count_observations(step.sample[OBS], None, self.algorithm, self.storage)
        self.storage.insert_transition(step.sample)
        self._shaped += step.shaped_returns
        self.steps, self.episodes = step.steps, step.episodes
        return step.finished

    def publish(self, *, is_changed: bool = False) -> None:
        """Let further actions be chosen with the present weights, if updates, or anything else, have changed them."""
        version = self._present_version()
        if is_changed or version != self._version:
            self._publish(version)

    def _present_version(self) -> tuple[int, dict[str, Any]]:
        return self.algorithm.updates, self.algorithm.changed_parameters

    def _publish(self, version: tuple[int, dict[str, Any]]) -> None:
        algorithm = self.algorithm
        progress = algorithm.steps, algorithm.target_steps
        self._version = version
        self._published.append(_Published(algorithm.get_weights(), version[1], progress))

    def take_shaped_returns(self) -> list[float]:
        """Return the episode returns in stored rewards since the last call; [] if rewards are unchanged."""
        taken, self._shaped = self._shaped, []
        return taken

    def set_target(self, target_steps: int) -> None:
        """Set the length of the explorer's schedules, in environment transitions of the run."""
        self.act.set_target(target_steps)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that determines the next steps; called when all steps are stored."""
        if self._queue:
            raise RuntimeError("BackgroundCollector: steps wait to be stored; save by Agent.save(), which stores them")
        return self.act.state_dict() | {"noise": self.acting.random_state()}

    def load_state_dict(self, state: dict[str, Any]) -> list[int]:
        """Restore the state returned by `state_dict`, or by that of a :class:`Collector`."""
        lost = self.act.load_state_dict({name: part for name, part in state.items() if name != "noise"})
        if "noise" in state:
            self.acting.load_random_state(state["noise"])
        self.steps, self.episodes = self.act.steps, self.act.episodes
        self._publish(self._present_version())
        return lost


class _Outbox:
    """Stands in for the storage: keeps the last step.

    Args:
        storage: the real one.
    """

    def __init__(self, storage: Storage) -> None:
        self.on_policy = storage.on_policy
        self._sample: Sample = {}

    def insert_transition(self, sample: Sample) -> None:
        """Keep a copy of a step of all environments."""
        self._sample = deepcopy(sample)

    def take(self) -> Sample:
        """Return the last step."""
        return self._sample
