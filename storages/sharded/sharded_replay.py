"""Several shards behind one source of batches, as if one storage held what they hold."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from storages.checks import refuse_counts, refuse_incomplete
from storages.core.device.transfer import Fetched, Transfer
from storages.core.kernels.insert import all_finite
from storages.core.kernels.priority_updates import effective_sample_size
from storages.core.sampling.update_errors import errors_of_sequences, tensor_of_errors
from storages.sharded.groups import Pending, ShardGroup, ShardLostError, SliceWriter
from storages.sharded.known_shards import KnownShards
from storages.sharded.pipeline import Pipeline, Told
from storages.sharded.replay_shard import Summary, Update
from storages.storage import EmptyStorageError, Storage
from storages.transition import EPISODE, INDICES, MASK, WEIGHTS, Batch

_OWNER = "ShardedReplay"
_FURTHER_ATTEMPTS = 3


class ShardedReplay:
    """Makes batches of shards: replay storages that live in other processes, or on other machines.

    Each batch is drawn of one shard. The shard is chosen with the probability in which the sum of its priorities stands
    to that of all shards (of uniform storages, the number of its rows), so that a row is as likely as if one storage
    held everything; WEIGHTS are those of that storage, too. Ape-X (Horgan et al., arXiv 1803.00933) has one replay
    memory for all actors, which shards then stand for; Reverb (Cassirer et al., arXiv 2102.04736, section 3.5) has
    independent servers, each with weights of its own rows. Ranks (``prioritization="rank"``) are those within a shard.

    Batches are asked for ahead of the learner, ``batches_at_once`` with one round of messages. Errors go back with the
    next round, to the shard that drew the batch: not to a row that was overwritten since, nor to a shard that replaced
    one that died. With ``batches_at_once=1`` and ``rounds_ahead=0`` every batch is drawn after the errors of the one
    before count, as in one storage; with the defaults, a batch may be drawn up to 32 updates before it is used, as
    Ape-X's learner prefetches 16.

    Experience need not come through it: collectors send slices to the shards themselves, each by a
    :class:`SliceWriter`, with ERRORS where they compute initial priorities. :meth:`insert_data_slice` sends them from
    here.

    A shard that dies is replaced by its group. One with a directory comes back with what it had committed, another one
    is empty; a warning says how much is lost. Batches are drawn of the others meanwhile.

    Args:
        group: the shards.
        device: where batches land.
        batches_at_once: batches of a round of messages, of all shards together.
        rounds_ahead: rounds that are on their way while the learner uses one.
        patience_seconds: how long a shard may take to answer before the learner goes on with the others.
        give_up_seconds: how long no shard may answer before that is an error.

    Raises:
        ValueError: a number is outside its range, or there are no shards.
    """

    on_policy = False
    knows_newest_steps = False
    rate_limiter = None

    def __init__(
        self,
        group: ShardGroup,
        device: torch.device | str = "cpu",
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
            self._take_up_replacement,
        )
        self.states_kept = Storage.states_kept
        """As of storages, of each shard."""
        self._positions: dict[int, Any] = {}
        """The commit of each shard with a directory that the latest state refers to."""
        self._generator = np.random.default_rng()
        self._writer = SliceWriter(group)
        self._batch_size = 0
        self._drawn = 0
        """Rows of all batches so far."""
        self._updates: list[Fetched] = []
        """Rows of updates and their errors, and what steps the rows are of, that no shard was told of."""
        self._progress: tuple[int, int] | None = None
        """The run's, where shards were not told of it."""
        self._last_progress = (0, 1)

    # What the learner calls

    def before_gradients(self) -> None:
        """Do nothing: a replay has nothing to prepare."""

    def generate_batches(
        self, num_mini_batch: int, mini_batch_size: int | None, num_epochs: int = 1
    ) -> Iterator[Batch]:
        """Return an iterator of ``num_epochs * num_mini_batch`` batches, each of one shard.

        Raises:
            EmptyStorageError: no shard holds anything; raised by the call.
            ValueError: a number is no int from 1 on.
            ShardLostError: no shard answers.
        """
        refuse_counts(num_mini_batch, mini_batch_size, num_epochs, _OWNER)
        if mini_batch_size is None:
            raise ValueError(f"{_OWNER}: a replay needs a mini_batch_size, got None")
        if not self._known.rows:
            self._pipeline.refresh()
            if not self._known.rows and None not in self._known.summaries:
                raise EmptyStorageError(f"{_OWNER}: no batch can be made of empty shards; insert slices first")
        if mini_batch_size != self._batch_size:
            self._pipeline.drop()
            self._batch_size = mini_batch_size
        return self._batches(mini_batch_size, num_epochs * num_mini_batch)

    def insert_data_slice(self, data: Mapping[str, Any]) -> None:
        """Send a slice to the next shard, as :meth:`SliceWriter.write`.

        Raises:
            ShardLostError: no shard takes it.
            Exception: an earlier slice does not fit, as of ``insert_data_slice`` of storages.
        """
        self._writer.write(data)

    def after_gradients(self, batch: Batch, info: Mapping[str, Any]) -> dict[str, Any]:
        """Let priorities follow the errors in ``info``, with the next round; returns it with metrics of all shards.

        Raises:
            ValueError: shards have priorities, and ``info`` not one error for each row of the batch.
        """
        known = self._known
        metrics = {
            "storage/replay_ratio": self._drawn / max(1, sum(summary.inserted for summary in known.answering)),
            "storage/shards": len(known.answering),
        }
        if known.eta is not None:
            steps = tuple(batch[key] for key in (EPISODE, MASK) if key in batch)[:1]
            errors = tensor_of_errors(info, tuple((steps or (batch[INDICES],))[0].shape), _OWNER)
            self._updates.append(self._transfer.fetch(batch[INDICES], errors, *steps))
            metrics["storage/mean_priority"] = known.total / max(1, known.rows)
            weights = batch[WEIGHTS]
            if not weights.is_cuda:
                metrics["storage/effective_sample_size"] = effective_sample_size(weights.numpy(force=True))
        return {**info, **metrics}

    def set_progress(self, steps: int, target_steps: int) -> None:
        """Say how far the run has come; schedules of the shards follow with the next round."""
        if (steps, target_steps) != self._last_progress:
            self._progress = self._last_progress = (steps, target_steps)

    def after_episodes(self, returns: Sequence[float]) -> None:
        """Do nothing: no storage that follows returns can be a shard."""

    def include_next_actions(self) -> None:
        """Let batches hold ACT2 and TAKEN2 from here on."""
        self._pipeline.drop()
        self._call_all("include_next_actions")

    def newest_steps(self, steps: int) -> Batch:
        """Refuse: which steps are the newest, no shard can say.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(f"{_OWNER}: none of the shards has the newest steps of all; use one ReplayBuffer")

    def update_storage_parameter(self, name: str, value: Any) -> None:
        """Change a hyper-parameter of all shards.

        Raises:
            ValueError: as of the storages.
        """
        self._pipeline.drop()
        self._call_all("update_storage_parameter", name, value)

    def reset(self) -> None:
        """Drop all transitions."""
        self._pipeline.drop()
        self._updates.clear()
        self._call_all("reset")
        self._pipeline.refresh()

    def seed(self, seed: int | np.random.SeedSequence) -> None:
        """Start the generator that chooses shards anew, and those of the shards."""
        self._pipeline.drop()
        root = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
        # Not by spawn(), which changes what it is called on.
        parts = [
            np.random.SeedSequence(root.entropy, spawn_key=(*root.spawn_key, part))
            for part in range(len(self.group) + 1)
        ]
        self._generator = np.random.default_rng(parts[-1])
        for shard, part in enumerate(parts[:-1]):
            self._result_of(shard, "seed", part)

    # State

    def state_dict(self) -> dict[str, Any]:
        """The states of all shards and what chooses among them, as tensors and plain data.

        Of shards with directories, the positions of commits in these. Batches that are on their way are dropped, so
        that a run that goes on draws the same ones as a run that is resumed.
        """
        self._settle()
        self._call_all("__setattr__", "states_kept", self.states_kept)
        shards = self._call_all("state_dict")
        self._positions = _positions_in(shards)
        return {"shards": shards, "generator": self._generator.bit_generator.state, "drawn": self._drawn}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`.

        Raises:
            ValueError: it is no such state, or of another number of shards.
            PersistenceError: a directory does not have the commit.
        """
        refuse_incomplete(state, ("shards", "generator", "drawn"), _OWNER)
        if len(state["shards"]) != len(self.group):
            raise ValueError(f"{_OWNER}: saved with {len(state['shards'])} shards, made with {len(self.group)}")
        self._pipeline.drop()
        self._updates.clear()
        for shard, of_shard in enumerate(state["shards"]):
            self._result_of(shard, "load_state_dict", of_shard)
        self._positions = _positions_in(state["shards"])
        self._generator.bit_generator.state, self._drawn = state["generator"], state["drawn"]
        self._pipeline.refresh()

    def flush(self) -> None:
        """Let all shards with directories commit everything."""
        self._settle()
        self._call_all("flush")

    def close(self) -> None:
        """Commit everything, and end the shards."""
        self.group.close()

    @property
    def capacity(self) -> int:
        """Transitions that fit."""
        return sum(summary.capacity for summary in self._summaries_now())

    @property
    def num_envs(self) -> int:
        """Transitions in a step of each shard; 0 before it is known."""
        return max((summary.num_envs for summary in self._summaries_now()), default=0)

    @property
    def nbytes(self) -> int:
        """Bytes of memory of all shards."""
        return sum(summary.nbytes for summary in self._summaries_now())

    def __len__(self) -> int:
        """Transitions that the shards hold now."""
        return sum(summary.transitions for summary in self._summaries_now())

    def __repr__(self) -> str:
        return f"{_OWNER}({len(self.group)} shards)"

    # Inside

    def _summaries_now(self) -> list[Summary]:
        self._pipeline.refresh()
        return self._known.answering

    def _batches(self, batch_size: int, count: int) -> Iterator[Batch]:
        known = self._known
        for fields, shard, factor in self._pipeline.batches(self._generator, batch_size, count, self._take_told):
            if factor != 1:
                fields[WEIGHTS] *= np.float32(factor)
            fields[INDICES] += known.first_index(shard)
            self._drawn += batch_size
            yield self._transfer.receive(self._transfer.send(fields))

    def _take_told(self) -> Told:
        """Take what updates said, by shard; that of shards that died is left out."""
        known, updates, self._updates = self._known, self._updates, []
        parts: defaultdict[tuple[int, str], list[tuple[NDArray[np.int64], NDArray[np.floating]]]] = defaultdict(list)
        for fetched in updates:
            indices, errors, *steps = fetched.arrays()
            errors = errors[..., 0]
            if steps:
                errors = errors_of_sequences(errors, steps[0], len(indices), known.eta or 0.0)
            if not all_finite(errors.reshape(-1)):
                raise ValueError(f"{_OWNER}: an error of an update is not finite; the update has diverged")
            found = known.shard_of(int(indices[0, 0]))
            if found is not None:
                parts[found].append((indices[:, 0] - known.first_index(found[0]), errors))
        told = {
            shard: [Update(identity, *(np.concatenate(arrays) for arrays in zip(*of_shard, strict=True)))]
            for (shard, identity), of_shard in parts.items()
        }
        progress, self._progress = self._progress, None
        return Told(told, progress)

    def _settle(self) -> None:
        """Drop batches that are on their way, and tell shards all that updates said, and slices."""
        self._writer.flush()
        self._pipeline.drop()
        updates, progress = self._take_told()
        for shard in range(len(self.group)):
            try:
                self.group.exchange(shard, updates.get(shard, ()), progress, 0, 1).result()
            except ShardLostError:
                self._known.lose(shard)
        self._pipeline.refresh()

    def _take_up_replacement(self, shard: int) -> None:
        """Let a shard that came back keep the commit that the latest state refers to."""
        self.group.call(shard, "__setattr__", "states_kept", self.states_kept)
        if shard in self._positions:
            self.group.call(shard, "pin", self._positions[shard])

    def _call_all(self, method: str, *arguments: Any) -> list[Any]:
        """What a method of each shard's storage returns; shards work at the same time."""
        answers = [self.group.call(shard, method, *arguments) for shard in range(len(self.group))]
        return [self._result_of(shard, method, *arguments, first=answer) for shard, answer in enumerate(answers)]

    def _result_of(self, shard: int, method: str, *arguments: Any, first: Pending[Any] | None = None) -> Any:
        """What a method of a shard's storage returns; where it dies, its replacement is asked."""
        answer = first or self.group.call(shard, method, *arguments)
        for _ in range(_FURTHER_ATTEMPTS):
            with suppress(ShardLostError):
                return answer.result()
            answer = self.group.call(shard, method, *arguments)
        return answer.result()


def _positions_in(states: Sequence[Mapping[str, Any]]) -> dict[int, Any]:
    return {shard: state["position"] for shard, state in enumerate(states) if "position" in state}
