"""The collector that stores steps of other processes, which run during updates."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.envs.plain_data import as_tensors
from pytorchrl.scheme.collector import Episode, count_observations
from pytorchrl.scheme.overlap.changes import ChangeHistory, ChangesAfter, refuse_unsendable
from pytorchrl.scheme.overlap.forked_process import CollectorError
from pytorchrl.scheme.overlap.process import CollectorProcess
from pytorchrl.scheme.overlap.remote_envs import RemoteEnvs
from pytorchrl.scheme.overlap.shared_arrays import ArrayKind
from pytorchrl.scheme.overlap.step_slots import StepSlots
from pytorchrl.scheme.overlap.weight_versions import Progress, WeightVersions
from pytorchrl.scheme.overlap.worker import CollectionArguments
from pytorchrl.scheme.seeds import ALGORITHM, RANDOM_ACTIONS, TRAIN_ENVS, seed_of
from pytorchrl.scheme.stored_rewards import RewardNormalization, ShapedReturns
from storages import SampleError
from storages.storage import Storage
from storages.transition import DONE2, OBS, REW, SKIPPED, TRUNC2


class OverlappedCollector:
    """Stores the steps of collector processes, which may run some steps ahead of the storage.

    With a lead of D steps, step n is made with the weights after all updates that were due at step n - D, and never
    with newer ones, so that a run does not depend on the speed of the processes.

    Args:
        envs: the environments of the collector processes.
        algorithm: the learner's.
        storage: gets the transitions.
        rewards: normalises the stored rewards; None stores the environments' rewards.
        lead: D, in steps of all environments.
        versions: number of weight versions in memory: those that a step may be made with, and one more.
        run_seed: of all random numbers.
    """

    def __init__(
        self,
        envs: RemoteEnvs,
        algorithm: Algorithm,
        storage: Storage,
        rewards: RewardNormalization | None,
        *,
        lead: int,
        versions: int,
        run_seed: int,
    ) -> None:
        self.envs, self.algorithm, self.storage = envs, algorithm, storage
        self.episodes = 0
        """Episodes that ended so far, as stored."""
        self.metrics: Mapping[str, float] = {}
        """Logged with each update."""
        self._rewards = rewards
        self._shaped = ShapedReturns(envs.num_envs) if envs.is_wrapped or rewards is not None else None
        self._run_seed = run_seed
        self._lead = lead
        self._target_steps = 0
        self._position = 0
        """Number of steps of all environments that were stored."""
        self._skipped = 0
        """Number of single environments' steps among them that made no transition."""
        self._settled = 0
        """Number of steps for which all due updates are made and the weights published."""
        self._allowed = 0
        """Number of steps that the processes were permitted to make since the run began."""
        self._version, self._updates_published = -1, -1
        """The newest published weight version, and the number of updates at that time."""
        self._slots: StepSlots | None = None
        """None until the layout of a step is known."""
        self._cuts: list[tuple[int, list[int]]] = []
        """(position, environments): before that step, the running episodes of these environments were lost."""
        self._has_failed = self._is_lost = False
        """Whether a step failed, and whether steps or processes were lost by that."""
        self._changes = ChangeHistory(lead)
        """Changed hyper-parameters of the algorithm that the processes were sent."""
        self._weights = WeightVersions(algorithm.actor, lead, versions)
        self._weights.make(envs.weights_memory)
        self._begin(lead, versions)

    @property
    def steps(self) -> int:
        """Environment transitions so far."""
        return self._position * self.envs.num_envs - self._skipped

    def step(self) -> list[Episode]:
        """Store the next step of all environments; returns the environments' own episodes that ended.

        Raises:
            CollectorError: a process has ended.
            Exception: any exception raised by a step in a process.
            RuntimeError: the previous step failed.
        """
        if self._has_failed:
            raise RuntimeError(
                "the last step of the environments failed, and their state is unknown; create new ones, with "
                "Learner.resume if the run was saved"
            )
        position = self._position
        try:
            self._send_changes()
        except CollectorError:
            self._has_failed = self._is_lost = True
            raise
        self._settle()
        try:
            if self._slots is None:
                self._agree_on_layout()
            for process in self.envs.processes:
                process.wait_for(position)
        except Exception as error:
            self._has_failed = True
            self._is_lost = isinstance(error, CollectorError) or self._slots is None
            raise
        assert self._slots is not None
        try:
            self._insert(self._slots.step(position))
        except SampleError as error:
            # Later steps must not be stored without this one.
            self._has_failed = self._is_lost = True
            error.add_note(f"The sample was collected in {self.envs.env_name}, by reset() or step().")
            raise
        self._measure_lag(position)
        self._position += 1
        return self._finished(position)

    def take_shaped_returns(self) -> list[float]:
        """Return the episode returns in stored rewards since the last call; [] if rewards are unchanged."""
        return [] if self._shaped is None else self._shaped.take()

    def set_target(self, target_steps: int) -> None:
        """Set the length of the explorer's schedules and the limit of collection, in environment transitions."""
        self._target_steps = target_steps
        self._weights.set_target(target_steps)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that determines the next steps, as tensors and plain data.

        The processes pause between two steps for it. It includes the steps collected ahead, and the weight versions of
        later steps. If a process has ended, or a step could not be stored, new episodes begin when it is loaded.
        """
        state = {
            "steps": self.steps,
            "skipped": self._skipped,
            "episodes": self.episodes,
            "rewards": None if self._rewards is None else self._rewards.state_dict(),
            "shaped_returns": None if self._shaped is None else self._shaped.state_dict(),
            "cuts": [[position, envs] for position, envs in self._cuts],
            "ahead": None,
        }
        if self._is_lost or not all(process.is_alive for process in self.envs.processes):
            return state
        try:
            states = self._call_all("state")
        except CollectorError:
            self._has_failed = self._is_lost = True
            return state
        try:
            return state | {"ahead": self._state_ahead(states)}
        finally:
            self._release_all()

    def load_state_dict(self, state: dict[str, Any]) -> list[int]:
        """Restore the state returned by `state_dict`; returns the environments whose running episodes are lost.

        In these a new episode begins; the storage treats the lost one as truncated.
        """
        self._skipped, self.episodes = state["skipped"], state["episodes"]
        self._position = (state["steps"] + self._skipped) // self.envs.num_envs
        if self._rewards is not None:
            self._rewards.load_state_dict(state["rewards"])
        if self._shaped is not None:
            self._shaped.load_state_dict(state["shaped_returns"])
        self._cuts = [(position, envs) for position, envs in state["cuts"]]
        lost = self._restart() if state["ahead"] is None else self._load_ahead(state["ahead"])
        self._has_failed = self._is_lost = False
        self.episodes += len(lost)
        self._release_all()
        return lost

    # Steps

    def _insert(self, sample: dict[str, Any]) -> None:
        """Store a step as :meth:`Collector.step` does."""
        while self._cuts and self._cuts[0][0] == self._position:
            _, envs = self._cuts.pop(0)
            self._begin_episodes(envs)
        skipped = sample.get(SKIPPED) if self.storage.on_policy else sample.pop(SKIPPED, None)
        made = None if skipped is None else ~skipped
        count_observations(sample[OBS], made, self.algorithm, self.storage)
        ended = sample[DONE2] | sample[TRUNC2]
        if made is not None:
            # A skipped step is stored as an episode of one step, so that no transition extends across it.
            ended &= made
            self._skipped += int(np.count_nonzero(~made))
        if self._rewards is not None:
            # Callbacks may change it.
            self._rewards.gamma = self.algorithm.gamma
            sample[REW] = self._rewards(sample[REW], ended, made)
        else:
            sample[REW] = sample[REW].astype(np.float32)
        if made is None or self.storage.on_policy:
            self.storage.insert_transition(sample)
        else:
            self.storage.insert_masked(sample, made[:, 0])
        if self._shaped is not None:
            self._shaped.add(sample[REW], ended)
        self.episodes += int(np.count_nonzero(ended))

    def _finished(self, position: int) -> list[Episode]:
        assert self._slots is not None
        counts = self._slots.finished[self._slots.slot(position)]
        if not counts.any():
            return []
        processes = [process for process in self.envs.processes if counts[process.number]]
        return [Episode(*episode) for process in processes for episode in process.finished(position)]

    def _measure_lag(self, position: int) -> None:
        acted_with = self._weights.progress_of(self._weights.version_for(position))
        self.metrics = {"train/policy_lag": float(self.algorithm.updates - acted_with.updates)}

    def _begin_episodes(self, envs: list[int]) -> None:
        where: NDArray[np.bool_] = np.zeros((self.envs.num_envs, 1), np.bool_)
        where[envs] = True
        for sums in (self._rewards, self._shaped):
            if sums is not None:
                sums.begin_episodes(where)

    # Commands to the processes

    def _begin(self, lead: int, versions: int) -> None:
        envs, processes = self.envs, self.envs.processes
        for process, rows in zip(processes, envs.rows, strict=True):
            arguments = CollectionArguments(
                lead=lead,
                slots=lead + 1,
                versions=versions,
                workers=len(processes),
                position=rows.start,
                num_envs=envs.num_envs,
                on_policy=self.storage.on_policy,
                info_keys=tuple(getattr(self.storage, "info_keys", ())),
                env_seed=self._seed_of(TRAIN_ENVS, process.number),
                explorer_seed=self._seed_of(RANDOM_ACTIONS, process.number),
                noise_seed=seed_of(self._run_seed, ALGORITHM, 1, process.number),
            )
            process.tell("begin", arguments)
        for process in processes:
            process.answer()
        self._release_all()

    def _settle(self) -> None:
        """Publish the weights after the updates that followed the last step, and permit further steps."""
        progress = Progress(self.algorithm.steps, self._target_steps, self.algorithm.updates)
        if progress.updates != self._updates_published:
            self._version += 1
            self._weights.publish(self._version, self._position, self._skipped, progress)
            self._updates_published = progress.updates
        else:
            self._weights.name(self._version, self._position, self._skipped)
        self._settled = self._position
        to_target = self._position - (self.steps - self._target_steps) // self.envs.num_envs
        allowed = max(self._position + 1, min(self._position + 1 + self._lead, to_target))
        if allowed > self._allowed:
            for process in self.envs.processes:
                process.allow(allowed - self._allowed)
            self._allowed = allowed

    def _send_changes(self) -> None:
        """Send the processes the changed hyper-parameters, if they differ from those sent before.

        Raises:
            CollectorError: a process has ended.
            TypeError: a value cannot be sent to other processes.
        """
        changes = self.algorithm.changed_parameters
        if self._changes.differ(changes):
            refuse_unsendable(changes, f"Overlapped: {type(self.algorithm).__name__}")
            self._changes.record(self._position, changes)
            self._send_change_sets()
            self._release_all()

    def _send_change_sets(self) -> None:
        sets = self._changes.since(self._position)
        self._call_all("take_changes", [sets] * len(self.envs.processes))

    def _agree_on_layout(self) -> None:
        processes = self.envs.processes
        layout, *_ = [process.layout() for process in processes]
        self._make_slots(layout)
        for process in processes:
            process.use_layout(layout)

    def _make_slots(self, layout: Any) -> None:
        envs = self.envs
        self._slots = StepSlots(
            layout, self._lead + 1, envs.num_envs, len(envs.processes), envs.steps_memory, is_maker=True
        )

    def _call_all(self, name: str, arguments: list[Any] | None = None) -> list[Any]:
        """Send a command to all processes; returns its results. The processes then wait, unless one of them failed."""
        told: list[CollectorProcess] = []
        answers: list[Any] = []
        failures: list[Exception] = []
        for process in self.envs.processes:
            try:
                process.tell(name, None if arguments is None else arguments[process.number])
                told.append(process)
            except CollectorError as error:
                failures.append(error)
        for process in told:
            try:
                answers.append(process.answer())
            except Exception as error:  # of the command, in the process
                failures.append(error)
        if failures:
            self._release_all()
            raise failures[0]
        return answers

    def _release_all(self) -> None:
        for process in self.envs.processes:
            process.go_on()

    def _seed_of(self, purpose: int, process: int, *moment: int) -> np.random.SeedSequence:
        # Environments and explorer of the first process have the same seeds as in a run with one process.
        return seed_of(self._run_seed, purpose, *((process, *moment) if process or moment else ()))

    # State

    def _state_ahead(self, states: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the states of the processes, and the steps that they have collected and that are not stored yet."""
        envs, slots = self.envs, self._slots
        to_make = min(state["position"] for state in states)
        return {
            "processes": states,
            "allowed": self._allowed,
            "settled": self._settled,
            "version": self._version,
            "updates_published": self._updates_published,
            "weights": None if self._version < 0 else self._weights.state_dict(self._position, to_make, self._settled),
            "changes": self._changes.state_dict(self._position, type(self.algorithm)),
            "finished": [process.finished_later() for process in envs.processes],
            "layout": None if slots is None else [[list(path), *kind] for path, kind in slots.layout.items()],
            "steps": [
                [] if slots is None else as_tensors(slots.read(range(self._position, state["position"]), rows))
                for state, rows in zip(states, envs.rows, strict=True)
            ],
        }

    def _load_ahead(self, state: Mapping[str, Any]) -> list[int]:
        """Restore the state returned by `_state_ahead`; returns the environments whose running episodes are lost."""
        if state["layout"] is not None and self._slots is None:
            layout = {tuple(path): ArrayKind(dtype, tuple(shape)) for path, dtype, shape in state["layout"]}
            self._make_slots(layout)
            self._call_all("map_slots", [layout] * len(self.envs.processes))
            self._release_all()
        self._changes.load_state_dict(state["changes"], type(self.algorithm), self.algorithm.changed_parameters)
        self._send_change_sets()
        self._release_all()
        lost = self._call_all("load", state["processes"])
        for name in ("allowed", "settled", "version", "updates_published"):
            setattr(self, f"_{name}", state[name])
        if state["weights"] is not None:
            self._weights.load_state_dict(state["weights"])
        for process, state_there, finished, arrays in zip(
            self.envs.processes, state["processes"], state["finished"], state["steps"], strict=True
        ):
            self._put_steps(process.number, [array.numpy() for array in arrays])
            process.forget_counts()
            process.count_made(state_there["position"] - self._position)
            process.allow(self._allowed - state_there["position"])
            process.put_finished(finished)
            for position, episodes in finished:
                assert self._slots is not None
                self._slots.finished[self._slots.slot(position), process.number] = len(episodes)
            if envs := self.envs.envs_of(process.number, lost[process.number]):
                self._cuts.append((state_there["position"], envs))
        self._cuts.sort()
        return [env for process, envs in enumerate(lost) for env in self.envs.envs_of(process, envs)]

    def _put_steps(self, process: int, arrays: list[NDArray[Any]]) -> None:
        """Write the steps of a process, (N, E, ...) each, into the shared memory, to be stored later."""
        slots = self._slots
        if slots is not None:
            for number in range(len(arrays[0])):
                step = {path: array[number] for path, array in zip(slots.layout, arrays, strict=True)}
                slots.write(self._position + number, self.envs.rows[process], step)

    def _restart(self) -> list[int]:
        """Begin new episodes in all environments; returns their numbers."""
        position = self._position
        seeds = [
            (position, self._seed_of(TRAIN_ENVS, number, position), self._seed_of(RANDOM_ACTIONS, number, position))
            for number in range(len(self.envs.processes))
        ]
        self._changes.take([ChangesAfter(0, self.algorithm.changed_parameters)])
        self._send_change_sets()
        self._release_all()
        self._call_all("restart", seeds)
        for process in self.envs.processes:
            process.forget_counts()
            process.put_finished([])
        self._allowed = self._settled = position
        self._version, self._updates_published = self._version + 1, self.algorithm.updates
        progress = Progress(self.algorithm.steps, self._target_steps, self._updates_published)
        self._weights.publish(self._version, position, self._skipped, progress)
        for after in range(max(0, position - self._lead), position):
            self._weights.name(self._version, after, self._skipped)
        every = list(range(self.envs.num_envs))
        self._begin_episodes(every)
        return every if position else []
