"""Batches mixed from several storages in fixed shares."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storages.batch_source import BatchSource
from storages.checks import refuse_counts, refuse_incomplete
from storages.compatibility import both_spellings
from storages.component.setting import Setting
from storages.core.sampling.update_errors import tensor_of_errors
from storages.off_policy.mixed_batches import incompatible_fields, join, split, with_constants
from storages.storage import Storage
from storages.transition import DONE, EPISODE, ERRORS, INDICES, MASK, RHS, Batch

_ROUNDING = 1e-6


@dataclass(frozen=True)
class MixedSource(Setting):
    """Setting of a source of batches that mixes several other sources in fixed shares.

    Half offline, half online data is the symmetric sampling of Ball et al., "Efficient Online Reinforcement Learning
    with Offline Data" (RLPD, arXiv 2302.02948), section 4.1.

    Args:
        shares: each source's share of a batch's rows, by name; they sum to 1.

    Raises:
        ValueError: there is no source, or shares are not positive numbers that sum to 1.
    """

    shares: Mapping[str, float]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "shares", checked_shares(self.shares, type(self).__name__))


class MixedStorage(BatchSource):
    """Mixes batches of several replay storages in fixed shares; each storage keeps its own settings.

    A batch holds the rows of the first storage, then those of the second, and so on; ``SOURCE_SIZES`` are their
    numbers. A share that is not a whole number of rows is rounded so that all sum to the batch size. ``WEIGHTS``
    correct for priorities within a storage, not for the shares.

    Args:
        storages: the storages by name; all for one device and with the same fields.
        shares: each storage's share of a batch's rows, by the same names; they sum to 1.
        constants: fields that some of the storages lack: the numbers of a row, and the value of all of them there.

    Raises:
        ValueError: names or devices differ, shares do not sum to 1, or a storage is on-policy.
    """

    on_policy = False

    def __init__(
        self,
        storages: Mapping[str, Storage],
        shares: Mapping[str, float],
        constants: Mapping[str, tuple[int, float]] | None = None,
    ) -> None:
        self.storages = dict(storages)
        """The storages by name."""
        self._constants = dict(constants or {})
        self.shares = self._shares_as_made = self._checked(shares)
        """Each storage's share of a batch's rows, by name."""
        for name, storage in self.storages.items():
            if storage.on_policy:
                raise ValueError(
                    f"{_OWNER}: {name!r} is a {type(storage).__name__}, an on-policy storage; only replay storages, "
                    f"such as ReplayBuffer, can be mixed"
                )
        self._fields_that_fit: list[set[str]] = []
        devices = {name: str(storage.device) for name, storage in self.storages.items()}
        if len(set(devices.values())) > 1:
            raise ValueError(f"{_OWNER}: storages must make batches on one device, got {devices}")

    def before_gradients(self) -> None:
        """Call ``before_gradients`` of every storage."""
        for storage in self.storages.values():
            storage.before_gradients()

    def generate_batches(
        self, num_mini_batch: int, mini_batch_size: int | None, num_epochs: int = 1
    ) -> Iterator[Batch]:
        """Return an iterator of ``num_epochs * num_mini_batch`` batches, each with rows of every storage.

        Raises:
            EmptyStorageError: one of the storages holds nothing.
            RateLimitError: the ``rate_limit`` of one allows no batches now; as after the other errors, nothing counts
                as drawn from any.
            ValueError: a count is not an int of at least 1, the batch is too small to have a row of each storage, or
                batches of the storages do not fit together, which the first batch shows.
        """
        refuse_counts(num_mini_batch, mini_batch_size, num_epochs, _OWNER)
        if mini_batch_size is None:
            raise ValueError(f"{_OWNER}: a mix of storages needs a mini_batch_size, got None")
        shares = self.rows_of(mini_batch_size)
        for name in shares:
            storage = self.storages[name]
            limiter = getattr(storage, "rate_limiter", None)
            # A source that can give nothing is asked first, so that nothing is counted as drawn from the others.
            if not len(storage) or (limiter is not None and not limiter.may_draw()):
                storage.generate_batches(num_mini_batch, shares[name], num_epochs)
        batches = [
            self.storages[name].generate_batches(num_mini_batch, rows, num_epochs) for name, rows in shares.items()
        ]
        return self._batches(batches)

    def rows_of(self, batch_size: int) -> dict[str, int]:
        """Return how many rows of a batch each storage gives, by its name.

        The largest remainders are rounded up (Hamilton's method); of equal ones, the first.

        Raises:
            ValueError: a storage would have no row.
        """
        exact = {name: share * batch_size for name, share in self.shares.items()}
        rows = {name: math.floor(number + _ROUNDING) for name, number in exact.items()}
        by_remainder = sorted(exact, key=lambda name: rows[name] - exact[name])
        for name in by_remainder[: batch_size - sum(rows.values())]:
            rows[name] += 1
        for name, count in rows.items():
            if not count:
                raise ValueError(
                    f"{_OWNER}: a share of {self.shares[name]} of a batch of {batch_size} gives no row of {name!r}; "
                    f"increase the batch size or the share"
                )
        return rows

    def after_gradients(self, batch: Batch, info: Mapping[str, Any]) -> dict[str, Any]:
        """Pass each storage its rows of the batch, with their errors and states; return ``info`` with their metrics.

        A metric ``storage/x`` of a storage becomes ``storage/name/x``.

        Raises:
            ValueError: the errors in ``info`` are not one real number for each row, or the recurrent states not one for
                each step; no priority and no state was changed.
        """
        of_update = {}
        if ERRORS in info:
            of_rows = next(batch[key] for key in (EPISODE, MASK, INDICES) if key in batch)
            of_update[ERRORS] = tensor_of_errors(info, tuple(of_rows.shape), _OWNER)
        if RHS in info:
            of_update[RHS] = info[RHS]
            if tuple(info[RHS].shape[:-1]) != tuple(batch[DONE].shape[:-1]):
                raise ValueError(
                    f"{_OWNER}: {RHS} of an update must be one state for each step of the batch, with shape "
                    f"{tuple(batch[DONE].shape[:-1])} before the last axis, got {tuple(info[RHS].shape)}"
                )
        said = dict(info)
        for (name, storage), (part, of_part) in zip(self.storages.items(), split(batch, of_update), strict=True):
            for key, value in storage.after_gradients(part, {**info, **of_part}).items():
                if key not in info:
                    said[key.replace("storage/", f"storage/{name}/", 1)] = value
        return said

    @both_spellings
    def update_storage_parameter(self, name: str, value: Any) -> None:
        """Change ``shares``, from the next call of :meth:`generate_batches` on.

        Raises:
            ValueError: it is another hyper-parameter, which the storages have, or the shares are invalid.
        """
        if name != "shares":
            raise ValueError(f"{_OWNER}: only 'shares' can change, got {name!r}; change those of storages[...] there")
        self.shares = self._checked(value)

    @property
    def changed_parameters(self) -> dict[str, Any]:
        """``shares`` if they differ from those with which it was made, by this name; else nothing."""
        return {} if self.shares == self._shares_as_made else {"shares": dict(self.shares)}

    def take_changes(self, changes: Mapping[str, Any]) -> None:
        """Take changed ``shares``, as :attr:`changed_parameters`; without them, return to the shares as made.

        Raises:
            ValueError: as :meth:`update_storage_parameter`; nothing was changed.
        """
        for name, value in {"shares": self._shares_as_made, **changes}.items():
            self.update_storage_parameter(name, value)

    def state_dict(self) -> dict[str, Any]:
        """Return the states of all storages and the shares, as tensors and plain data."""
        states = {name: storage.state_dict() for name, storage in self.storages.items()}
        return {"storages": states, "shares": dict(self.shares)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`.

        Raises:
            ValueError: it is no such state, or one of other storages.
        """
        refuse_incomplete(state, ("storages", "shares"), _OWNER)
        shares = self._checked(state["shares"])
        refuse_incomplete(state["storages"], list(self.storages), _OWNER)
        for name, storage in self.storages.items():
            storage.load_state_dict(state["storages"][name])
        self.shares = shares

    def __len__(self) -> int:
        """Number of transitions stored in all of them."""
        return sum(map(len, self.storages.values()))

    def __repr__(self) -> str:
        parts = (f"{share:g} of {name!r}: {self.storages[name]!r}" for name, share in self.shares.items())
        return f"{_OWNER}({', '.join(parts)})"

    def _batches(self, parts: list[Iterator[Batch]]) -> Iterator[Batch]:
        for drawn in zip(*parts, strict=True):
            batches = [with_constants(batch, self._constants) for batch in drawn] if self._constants else drawn
            fields = [batch.keys() for batch in batches]
            # A storage's own fields and shapes are fixed; those added by windows may change.
            if fields != self._fields_that_fit:
                self._check_compatible(batches)
                self._fields_that_fit = [set(keys) for keys in fields]
            try:
                joined = join(batches)
            except RuntimeError:
                self._check_compatible(batches)
                raise
            yield joined

    def _check_compatible(self, batches: Sequence[Batch]) -> None:
        if found := incompatible_fields(dict(zip(self.storages, batches, strict=True))):
            raise ValueError(f"{_OWNER}: incompatible batches: {'; '.join(found)}")

    def _checked(self, shares: Mapping[str, float]) -> dict[str, float]:
        """Return the shares in the order of the storages."""
        checked = checked_shares(shares, _OWNER)
        if checked.keys() != self.storages.keys():
            raise ValueError(f"{_OWNER}: shares must name the storages {list(self.storages)}, got {list(checked)}")
        return {name: checked[name] for name in self.storages}


def checked_shares(shares: Mapping[str, float], owner: str) -> dict[str, float]:
    """Return shares as floats, by name.

    Raises:
        ValueError: there is none, or they are not positive numbers that sum to 1.
    """
    if not isinstance(shares, Mapping):
        raise ValueError(f"{owner}: shares must be numbers by name, got {shares!r}")
    are_numbers = all(isinstance(share, int | float) and not isinstance(share, bool) for share in shares.values())
    # In the affirmative, as NaN makes every comparison false.
    if not (
        shares
        and are_numbers
        and all(share > 0 for share in shares.values())
        and abs(sum(shares.values()) - 1) <= _ROUNDING
    ):
        raise ValueError(f"{owner}: shares must be positive numbers that sum to 1, got {dict(shares)}")
    return {name: float(share) for name, share in shares.items()}


_OWNER = MixedStorage.__name__
