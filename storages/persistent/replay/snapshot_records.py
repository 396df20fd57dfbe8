"""Validation of commits before they are replayed, because a valid checksum does not protect from crafted content.

Compiled kernels access the memory of a ring without bounds checks.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from storages.core.counts import saved_count
from storages.core.kernels.stacks import ZERO
from storages.core.ring.frames import FrameColumn
from storages.core.ring.layout import text
from storages.core.ring.ring import Ring
from storages.core.ring.snapshot import (
    BEFORE,
    CUT_BEFORE,
    ENDED,
    ERRORS,
    FINAL,
    FOLLOWING,
    HAS_FINAL,
    NEWEST,
    PADDING,
    PADDING_FRAMES,
    ROWS,
    ArrayKey,
    RowSpan,
)
from storages.persistent.log.commit_log import LARGEST_NUMBER, is_number
from storages.persistent.log.records import Record
from storages.transition import RHS, Array

CHANGES = "changed errors"
"""(changed,) float32: errors that changed since the previous commit; of all live transitions if there is no OFFSETS."""
OFFSETS = "offsets"
"""(changed,) uint32: the transitions of CHANGES, as offsets from the oldest live one."""

NEWER_STATES = ArrayKey("newer states", (RHS,))
"""(replaced, ...): recurrent states of earlier transitions that updates have replaced."""
STATE_OFFSETS = ArrayKey("offsets of newer states")
"""(replaced,) uint32: their transitions, as offsets from the oldest live one."""

COUNTS = {"inserted", "sampled"}
"""Counts in the state of a storage; rollouts lack the second."""


def flaw_of_part(record: Record, ring: Ring) -> str | None:
    """Describe why a commit cannot be replayed into a ring; return None if it can.

    Args:
        record: the commit.
        ring: a ring of the size and layout of the manifest, whose columns are allocated.
    """
    return _flaw_of_facts(record, ring) or next(_flaws_of_arrays(record, ring), None)


def flaw_of_state(state: Mapping[str, Any]) -> str | None:
    """Describe why no storage can restore the random generator or the counts of a state; return None if one can."""
    try:
        np.random.PCG64(0).state = state["generator"]
        for name in COUNTS & state.keys():
            saved_count(state, name, "the storage")
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        return f"an unusable state of the storage: {error!r}"
    return None


def repaired_state(state: Mapping[str, Any], inserted: int) -> dict[str, Any]:
    """Return a state with a new random generator, and as many transitions inserted as are stored, where unusable."""
    counts = {"inserted": inserted, "sampled": 0}
    fresh: dict[str, Any] = {"generator": np.random.default_rng(0).bit_generator.state} | {
        name: counts[name] for name in counts.keys() & state.keys()
    }
    usable = {
        name: state[name] for name in fresh.keys() & state.keys() if flaw_of_state(fresh | {name: state[name]}) is None
    }
    return {**state, **fresh, **usable}


def part_of(record: Record) -> RowSpan:
    """Return the rows of a commit that was validated."""
    return RowSpan(record.first, record.steps, record.facts["begins"], record.facts["since"], record.arrays)


def replaced_in(record: Record) -> NDArray[np.int64]:
    """Return the numbers (replaced,) of the transitions whose recurrent states a commit replaces."""
    if STATE_OFFSETS not in record.arrays:
        return np.empty(0, np.int64)
    numbers: NDArray[np.int64] = record.facts["start"] + record.arrays[STATE_OFFSETS][0].astype(np.int64)
    return numbers


def _flaw_of_facts(record: Record, ring: Ring) -> str | None:
    facts, since = record.facts, record.facts.get("since")
    if not isinstance(facts.get("state"), dict):
        return "no state of the storage beside its steps"
    if not is_number(since) or not since <= record.first <= record.steps or record.steps * ring.envs >= LARGEST_NUMBER:
        return f"steps {record.first} to {record.steps} after step {since!r}"
    if record.steps - record.first >= ring.rows:
        return f"{record.steps - record.first} steps, of {ring.size} that fit"
    if "size" in facts and not (is_number(facts["size"]) and 1 <= facts["size"] <= ring.size):
        return f"{facts['size']!r} as the capacity, of {ring.size}"
    if not is_number(facts.get("start")) or facts["start"] > record.steps * ring.envs:
        return f"{facts.get('start')!r} as the oldest of {record.steps * ring.envs} transitions"
    return None


def _flaws_of_arrays(record: Record, ring: Ring) -> Iterator[str]:
    arrays, rows, envs = record.arrays, record.steps - record.first, ring.envs
    taken = arrays[ArrayKey(HAS_FINAL)][0] if ArrayKey(HAS_FINAL) in arrays else np.zeros(0)
    # The first row of HAS_FINAL may be that of the row before.
    flag_rows = rows + (len(taken) == rows + 1 and record.first > record.facts["since"])
    shapes: dict[ArrayKey, tuple[tuple[int, ...], np.dtype[Any]]] = {
        ArrayKey(ENDED): ((envs,), np.dtype(np.bool_)),
        ArrayKey(HAS_FINAL): ((flag_rows, envs), np.dtype(np.bool_)),
        ArrayKey(CUT_BEFORE): ((flag_rows - rows, envs), np.dtype(np.bool_)),
    }
    for path, column in ring.columns.inserted.items():
        layout = column.layout
        shapes[ArrayKey(ROWS, path)] = (rows, envs, *column.data.shape[2:]), layout.dtype
        if column.successor:
            shapes[ArrayKey(FINAL, path)] = (int(np.count_nonzero(taken)), column.width), np.dtype(np.uint8)
        if isinstance(column, FrameColumn):
            padding = arrays[ArrayKey(PADDING, path)][0] if ArrayKey(PADDING, path) in arrays else np.zeros(0)
            frames = int(np.count_nonzero(padding >= 0)), (column.depth - 1) * column.width
            shapes[ArrayKey(BEFORE, path)] = (rows, envs), np.dtype(np.uint8)
            shapes[ArrayKey(PADDING, path)] = (rows, envs), np.dtype(np.int32)
            shapes[ArrayKey(PADDING_FRAMES, path)] = frames, np.dtype(np.uint8)
            shapes[ArrayKey(NEWEST, path)] = (envs, *layout.shape), layout.dtype
        elif column.successor:
            shapes[ArrayKey(FOLLOWING, path)] = (envs, *layout.shape), layout.dtype
    if ArrayKey(ERRORS) in arrays:
        live = record.steps * envs - record.facts["start"]
        changed = arrays[ArrayKey(OFFSETS)][0].size if ArrayKey(OFFSETS) in arrays else live
        shapes[ArrayKey(ERRORS)] = (rows, envs), np.dtype(np.float32)
        shapes[ArrayKey(CHANGES)] = (changed,), np.dtype(np.float32)
        if ArrayKey(OFFSETS) in arrays:
            shapes[ArrayKey(OFFSETS)] = (changed,), np.dtype(np.uint32)
    if STATE_OFFSETS in arrays and NEWER_STATES.leaf in ring.columns.inserted:
        layout, replaced = ring.columns.inserted[NEWER_STATES.leaf].layout, arrays[STATE_OFFSETS][0].size
        shapes[NEWER_STATES] = (replaced, *layout.shape), layout.dtype
        shapes[STATE_OFFSETS] = (replaced,), np.dtype(np.uint32)
    if arrays.keys() != shapes.keys():
        yield f"arrays of {_named(arrays)}"
        return
    for name, (shape, dtype) in shapes.items():
        array = arrays[name][0]
        if (array.shape, array.dtype) != (shape, dtype):
            yield f"{array.dtype}{array.shape} as {_describe(name)}, which is {dtype}{shape}"
        elif flaw := _flaw_of_values(name, array, record, ring):
            yield flaw


def _flaw_of_values(name: ArrayKey, array: Array, record: Record, ring: Ring) -> str | None:
    if array.dtype == np.bool_:
        wrong = array.view(np.uint8) > 1
    elif name.role == BEFORE:
        wrong = array >= ring.stacked[name.leaf]
    elif name.role == PADDING:
        wrong = array < ZERO
    elif name.role in (ERRORS, CHANGES):
        wrong = np.isinf(array)
    elif name.role in (OFFSETS, STATE_OFFSETS.role):
        wrong = array >= record.steps * ring.envs - record.facts["start"]
    else:
        return None
    return f"{array.view(_PLAIN.get(array.dtype, array.dtype))[wrong][0]} in {_describe(name)}" if wrong.any() else None


_PLAIN: dict[np.dtype[Any], Any] = {np.dtype(np.bool_): np.uint8}


def _named(arrays: dict[ArrayKey, Any]) -> str:
    return ", ".join(map(_describe, arrays)) or "nothing"


def _describe(name: ArrayKey) -> str:
    return f"{name.role!r} of {text(name.leaf)}" if name.leaf else repr(name.role)
