"""Sharded replay: batches sampled from several shards as from a single storage."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from storages.batch_source import BatchSource
from storages.checks import refuse_counts, refuse_incomplete
from storages.compatibility import both_spellings
from storages.core.device.transfer import Fetched, Transfer
from storages.core.kernels.insert import all_finite
from storages.core.kernels.priority_updates import effective_sample_size
from storages.core.sampling.update_errors import errors_of_sequences, refuse_not_finite, tensor_of_errors
from storages.errors import EmptyStorageError
from storages.protocols import Discounting
from storages.sharded.groups import Pending, ShardGroup, ShardLostError, SliceWriter
from storages.sharded.known_shards import KnownShards
from storages.sharded.pipeline import PendingUpdates, Pipeline
from storages.sharded.replay_shard import Update
from storages.storage import Storage
from storages.transition import EPISODE, INDICES, MASK, WEIGHTS, Batch

_OWNER = "ShardedReplay"
_FURTHER_ATTEMPTS = 3


class ShardedReplay(BatchSource):
    """Samples batches from shards: replay storages in other processes, or on other machines.

    Each batch is sampled from one shard, chosen with probability proportional to the sum of its priorities (of uniform
    storages, to its number of rows). Each row is therefore as likely as in a single storage of all rows, and WEIGHTS
    are the importance weights of that storage. Ape-X (Horgan et al., arXiv 1803.00933) has a single replay memory for
    all actors, which the shards replace; Reverb (Cassirer et al., arXiv 2102.04736, section 3.5) has independent
    servers, each with weights of its own rows. Ranks (``prioritization="rank"``) are those within a shard, and so is
    ``uniform_share``: the more the mean priorities of shards differ, the less uniform is that part over all rows, for
    which WEIGHTS correct.

    Batches are prefetched, ``batches_at_once`` in one round of requests. New priorities are sent with the next round,
    to the shard that sampled the batch; those of rows that were overwritten since, or of a shard that died, are
    ignored. With ``batches_at_once=1`` and ``rounds_ahead=0`` every batch is sampled after the priority update of the
    previous one, as in a single storage. With the defaults, a batch may be sampled up to 32 updates before it is used;
    Ape-X's learner prefetches 16.

    Collectors can send slices to the shards directly, each with its own :class:`SliceWriter`, with ERRORS if they
    compute initial priorities. :meth:`insert_data_slice` sends slices from the learner's process.

    A shard that dies is replaced by its group: restored from the last commit if it has a directory, and empty
    otherwise. A warning says how many transitions are lost. Meanwhile, batches are sampled from the other shards.

    Args:
        group: the shards.
        device: device of the batches.
        algorithm: provides ``gamma``, which the shards follow; None leaves them the one that they were made with.
        batches_at_once: batches of a round of requests, from all shards together.
        rounds_ahead: rounds that are prefetched while the learner uses one.
        patience_seconds: timeout of a shard, after which the learner continues with the others.
        give_up_seconds: timeout of all shards, after which an error is raised.

    Raises:
        ValueError: a number is outside its range, or there are no shards.
    """

    on_policy = False
    rate_limiter = None

    def __init__(
        self,
        group: ShardGroup,
        device: torch.device | str = "cpu",
        algorithm: Discounting | None = None,
        *,
        batches_at_once: int = 16,
        rounds_ahead: int = 1,
        patience_seconds: float = 10.0,
        give_up_seconds: float = 300.0,
    ) -> None:
        if not len(group) or batches_at_once < 1 or rounds_ahead < 0 or patience_seconds <= 0 or give_up_seconds <= 0:
            raise ValueError(
                f"{_OWNER}: at least one shard, batches_at_once from 1, rounds_ahead from 0 and positive seconds are "
                f"needed, got {len(group)} shards, {batches_at_once}, {rounds_ahead}, {patience_seconds} and "
                f"{give_up_seconds}"
            )
        self.group = group
        """The shards."""
        self.device = torch.device(device)
        self._transfer = Transfer(self.device)
        self._known = KnownShards(len(group))
        self._pipeline = Pipeline(
            group,
            self._known,
            batches_at_once,
            rounds_ahead,
            patience_seconds,
            give_up_seconds,
            self._configure_replacement,
        )
        self.states_kept = Storage.states_kept
        """``states_kept`` of each shard's storage."""
        self._positions: dict[int, Any] = {}
        """Position of the commit to which the latest state refers, for each shard with a directory."""
        self._changes: dict[str, Any] = {}
        """Changed hyper-parameters of the shards, which a replacement gets, too."""
        self._fields_added: list[str] = []
        """Names of the methods that had fields added to all further batches, which are called of a replacement, too."""
        self._algorithm = algorithm
        self._gamma: float | None = None
        """The discount factor that the shards were given; None before the first batches."""
        self._generator = np.random.default_rng()
        self._writer = SliceWriter(group)
        self._drawn = 0
        """Number of steps learnt from in all batches so far, without padding."""
        self._updates: list[Fetched] = []
        """Updates that were not sent to shards yet: indices, errors and, for sequences and episodes, steps."""
        self._progress: tuple[int, int] | None = None
        """Progress of the run, if it was not sent to shards yet."""
        self._last_progress = (0, 1)

    # Called by the learner

    def generate_batches(
        self, num_mini_batch: int, mini_batch_size: int | None, num_epochs: int = 1
    ) -> Iterator[Batch]:
        """Return an iterator of ``num_epochs * num_mini_batch`` batches, each from one shard.

        Raises:
            EmptyStorageError: all shards are empty; raised by the call.
            ValueError: a number is no positive int.
            ShardLostError: no shard answers.
        """
        refuse_counts(num_mini_batch, mini_batch_size, num_epochs, _OWNER)
        if mini_batch_size is None:
            raise ValueError(f"{_OWNER}: a replay needs a mini_batch_size, got None")
        if not self._known.rows:
            self._pipeline.refresh()
            if not self._known.rows and None not in self._known.summaries:
                raise EmptyStorageError(f"{_OWNER}: no batch can be made of empty shards; insert slices first")
        self._follow_gamma()
        return self._batches(mini_batch_size, num_epochs * num_mini_batch)

    @both_spellings
    def insert_data_slice(self, data: Mapping[str, Any]) -> None:
        """Send a slice to the next shard, like :meth:`SliceWriter.write`.

        Raises:
            ShardLostError: no shard accepts the slice.
            Exception: an error of a storage's ``insert_data_slice`` for an earlier slice.
        """
        self._writer.write(data)

    def after_gradients(self, batch: Batch, info: Mapping[str, Any]) -> dict[str, Any]:
        """Queue a priority update with the errors in ``info``; return ``info`` with metrics of all shards.

        Shards keep the recurrent states of acting: states in ``info``, as much data as a batch, are not sent to them.

        Raises:
            ValueError: shards have priorities, but ``info`` does not have one finite error for each row of the batch,
                or the batch is of another storage. Values on a GPU are checked by a later draw.
        """
        known = self._known
        metrics = {
            "storage/replay_ratio": self._drawn / max(1, sum(summary.inserted for summary in known.answering)),
            "storage/shards": len(known.answering),
        }
        if known.eta is not None:
            steps = tuple(batch[key] for key in (EPISODE, MASK) if key in batch)[:1]
            errors = tensor_of_errors(info, tuple((steps or (batch[INDICES],))[0].shape), _OWNER)
            if errors.device.type == "cpu":
                refuse_not_finite(errors, steps[0] if steps else None, _OWNER)
                known.shard_of(int(batch[INDICES][0, 0]))
            self._updates.append(self._transfer.fetch(batch[INDICES], errors, *steps))
            metrics["storage/mean_priority"] = known.total / max(1, known.rows)
            weights = batch[WEIGHTS]
            if not weights.is_cuda:
                metrics["storage/effective_sample_size"] = effective_sample_size(weights.numpy(force=True))
        return {**info, **metrics}

    def set_progress(self, steps: int, target_steps: int) -> None:
        """Set the progress of the run, which the schedules of the shards get with the next round of requests."""
        if (steps, target_steps) != self._last_progress:
            self._progress = self._last_progress = (steps, target_steps)

    def include_next_actions(self) -> None:
        """Add ACT2 and TAKEN2 to all further batches."""
        self._add_fields("include_next_actions")

    def include_returns_to_go(self) -> None:
        """Add RTG to all further batches."""
        self._add_fields("include_returns_to_go")

    def newest_steps(self, steps: int) -> Batch:
        """Raise an error: a shard does not know the newest steps of all shards.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(f"{_OWNER}: none of the shards has the newest steps of all; use one ReplayBuffer")

    @both_spellings
    def update_storage_parameter(self, name: str, value: Any) -> None:
        """Change a hyper-parameter of all shards.

        Raises:
            ValueError: the storages refuse the name or the value.
        """
        self._pipeline.drop()
        self._call_all("update_storage_parameter", name, value)
        self._changes[name] = value

    @property
    def changed_parameters(self) -> dict[str, Any]:
        """Hyper-parameters of the shards that were changed since they were made, by name."""
        return dict(self._changes)

    def take_changes(self, changes: Mapping[str, Any]) -> None:
        """Change hyper-parameters of all shards as :meth:`Storage.take_changes`."""
        self._pipeline.drop()
        self._call_all("take_changes", changes)
        self._changes = dict(changes)

    def reset(self) -> None:
        """Drop all transitions."""
        self._pipeline.drop()
        self._updates.clear()
        self._call_all("reset")
        self._pipeline.refresh()

    def seed(self, seed: int | np.random.SeedSequence) -> None:
        """Seed the generator that chooses shards, and those of the shards."""
        self._pipeline.drop()
        root = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
        # Not by spawn(), which changes the state of the caller's SeedSequence.
        parts = [
            np.random.SeedSequence(root.entropy, spawn_key=(*root.spawn_key, part))
            for part in range(len(self.group) + 1)
        ]
        self._generator = np.random.default_rng(parts[-1])
        for shard, part in enumerate(parts[:-1]):
            self._result_of(shard, "seed", part)

    # State

    def state_dict(self) -> dict[str, Any]:
        """Return the states of all shards and of the generator, as tensors and plain data.

        The state of a shard with a directory refers to the position of a commit. Prefetched batches are dropped, so
        that a run that continues samples the same batches as a resumed one.
        """
        self._settle()
        self._call_all("__setattr__", "states_kept", self.states_kept)
        shards = self._call_all("state_dict")
        self._positions = _positions_in(shards)
        return {"shards": shards, "generator": self._generator.bit_generator.state, "drawn": self._drawn}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`.

        Raises:
            ValueError: the state is incomplete, or has another number of shards.
            PersistenceError: a directory does not have the commit of the state.
        """
        refuse_incomplete(state, ("shards", "generator", "drawn"), _OWNER)
        if len(state["shards"]) != len(self.group):
            raise ValueError(f"{_OWNER}: saved with {len(state['shards'])} shards, made with {len(self.group)}")
        self._pipeline.drop()
        self._updates.clear()
        for shard, of_shard in enumerate(state["shards"]):
            self._result_of(shard, "load_state_dict", of_shard)
        self._changes = self._result_of(0, "__getattribute__", "changed_parameters")
        self._positions = _positions_in(state["shards"])
        self._generator.bit_generator.state, self._drawn = state["generator"], state["drawn"]
        self._pipeline.refresh()

    def flush(self) -> None:
        """Commit everything in all shards with directories."""
        self._settle()
        self._call_all("flush")

    def close(self) -> None:
        """Commit everything, and stop the shards."""
        self.group.close()

    @property
    def capacity(self) -> int:
        """Number of transitions that fit into all shards."""
        return sum(summary.capacity for summary in self._pipeline.refresh())

    @property
    def num_envs(self) -> int:
        """Number of environments in a step of each shard; 0 before it is known."""
        return max((summary.num_envs for summary in self._pipeline.refresh()), default=0)

    @property
    def nbytes(self) -> int:
        """Bytes of memory of all shards."""
        return sum(summary.nbytes for summary in self._pipeline.refresh())

    def __len__(self) -> int:
        """Number of transitions that are stored in all shards."""
        return sum(summary.transitions for summary in self._pipeline.refresh())

    def __repr__(self) -> str:
        return f"{_OWNER}({len(self.group)} shards)"

    # Inside

    def _batches(self, batch_size: int, count: int) -> Iterator[Batch]:
        for fields, first_index, factor in self._pipeline.batches(
            self._generator, batch_size, count, self._take_updates
        ):
            if factor != 1:
                fields[WEIGHTS] *= np.float32(factor)
            fields[INDICES] += first_index
            rows = len(fields.get(EPISODE, fields[INDICES]))
            self._drawn += int(np.count_nonzero(fields[MASK])) if MASK in fields else rows
            yield self._transfer.receive(self._transfer.send(fields))

    def _take_updates(self) -> PendingUpdates:
        """Return the queued updates by shard, and clear the queue; those of shards that died are left out."""
        known, updates, self._updates = self._known, self._updates, []
        parts: defaultdict[tuple[int, str], list[tuple[NDArray[np.int64], NDArray[np.floating]]]] = defaultdict(list)
        for fetched in updates:
            indices, errors, *steps = fetched.arrays()
            errors = errors[..., 0]
            if steps:
                errors = errors_of_sequences(errors, steps[0], len(indices), known.eta or 0.0)
            if not all_finite(errors.reshape(-1)):
                # Only this update is dropped: the others wait for the next draw.
                self._updates = [each for each in updates if each is not fetched]
                raise ValueError(f"{_OWNER}: an error of an update is not finite; the update has diverged")
            found = known.shard_of(int(indices[0, 0]))
            if found is not None:
                parts[found].append((indices[:, 0] - known.first_index(found[0]), errors))
        by_shard = {
            shard: [Update(identity, *(np.concatenate(arrays) for arrays in zip(*of_shard, strict=True)))]
            for (shard, identity), of_shard in parts.items()
        }
        progress, self._progress = self._progress, None
        return PendingUpdates(by_shard, progress)

    def _add_fields(self, method: str) -> None:
        self._pipeline.drop()
        self._call_all(method)
        self._fields_added.append(method)

    def _follow_gamma(self) -> None:
        """Give the shards the algorithm's present discount factor, if they do not have it."""
        if self._algorithm is not None and self._algorithm.gamma != self._gamma:
            self._pipeline.drop()
            self._gamma = self._algorithm.gamma
            self._call_all("__setattr__", "algorithm", SimpleNamespace(gamma=self._gamma))

    def _settle(self) -> None:
        """Wait for all slices, drop prefetched batches, and send all queued updates."""
        self._writer.flush()
        self._pipeline.drop()
        updates, progress = self._take_updates()
        for shard in range(len(self.group)):
            try:
                self.group.exchange(shard, updates.get(shard, ()), progress, 0, 1).result()
            except ShardLostError:
                self._known.mark_lost(shard)
        self._pipeline.refresh()

    def _configure_replacement(self, shard: int) -> None:
        """Have a shard that was replaced go on as the others, and pin the commit to which the latest state refers."""
        self.group.call(shard, "__setattr__", "states_kept", self.states_kept)
        for method in self._fields_added:
            self.group.call(shard, method)
        self.group.call(shard, "take_changes", self._changes)
        if self._gamma is not None:
            self.group.call(shard, "__setattr__", "algorithm", SimpleNamespace(gamma=self._gamma))
        if shard in self._positions:
            self.group.call(shard, "pin", self._positions[shard])

    def _call_all(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of all shards' storages concurrently; return the results."""
        answers = [self.group.call(shard, method, *arguments) for shard in range(len(self.group))]
        return [self._result_of(shard, method, *arguments, first=answer) for shard, answer in enumerate(answers)]

    def _result_of(self, shard: int, method: str, *arguments: Any, first: Pending[Any] | None = None) -> Any:
        """Return the result of a method of a shard's storage; call its replacement if the shard dies.

        Args:
            shard: position of the shard.
            method: name of the method.
            arguments: arguments of the method.
            first: the pending first call, if there is one.
        """
        answer = first or self.group.call(shard, method, *arguments)
        for _ in range(_FURTHER_ATTEMPTS):
            with suppress(ShardLostError):
                return answer.result()
            answer = self.group.call(shard, method, *arguments)
        return answer.result()


def _positions_in(states: Sequence[Mapping[str, Any]]) -> dict[int, Any]:
    return {shard: state["position"] for shard, state in enumerate(states) if "position" in state}
