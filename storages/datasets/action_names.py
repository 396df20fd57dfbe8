"""Texts of discrete actions: their order, the columns of their probabilities, and texts that may be errors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from storages.datasets.answers import Answers, FlatNames
from storages.datasets.columns import labels_of
from storages.errors import DatasetError
from storages.transition import Array

_RARE = 0.005
_FEW = 10


@dataclass(frozen=True)
class RareAction:
    """A text that few rows have, and that may be a typing error.

    Args:
        name: the text.
        count: number of its rows.
        row: the first one.
    """

    name: str
    count: int
    row: int


@dataclass(frozen=True)
class NamedActions:
    """The names of discrete actions, in the order of their numbers.

    Args:
        names: of the actions; empty where they have none.
        numbers: of the actions (N,) where they are texts; None where they are numbers already.
        rare: texts of few rows.
    """

    names: tuple[str, ...]
    numbers: NDArray[np.int64] | None
    rare: tuple[RareAction, ...] = ()


def named_actions(
    arrays: Mapping[str, Any], names: FlatNames, answers: Answers, path: Path
) -> tuple[NamedActions, FlatNames]:
    """Return the names and numbers of discrete actions, and the names of arrays with probabilities in their order.

    The order is the one that the user gives. Otherwise it is alphabetical, of the texts after which the columns of
    probabilities are named, such as ``p_none`` and ``p_email``, or else of those that occur.

    Args:
        arrays: all arrays of the file by name.
        names: what they are called.
        answers: what the user says.
        path: the file, for errors.

    Raises:
        DatasetError: a text is none of the actions; the error names its row.
    """
    given, column = answers.action_names, names.actions
    if len(set(given)) < len(given):
        raise DatasetError(f"{path}: action_names= must be different names, got {', '.join(given)}")
    columns = [part.strip() for part in (names.probabilities or "").split(",")]
    labels = labels_of(arrays, column)
    if labels is None:
        return NamedActions(given, None), names
    if answers.first_action is not None:
        raise DatasetError(f"{path}: {column} is text, whose texts are numbered from 0; leave out first_action=")
    codes = np.asarray(arrays[column][:]).reshape(-1)
    of_columns = _texts_of(columns, given or labels)
    order = given or tuple(sorted(of_columns or labels))
    if unknown := [label for label in labels if label not in order]:
        row = int((codes == labels.index(unknown[0])).argmax())
        source = "" if given else f", after which the probabilities {', '.join(columns)} are named"
        way_out = "; correct it, or name all actions by action_names= (in commands --action-names)"
        raise DatasetError(
            f"{path}: {column} is {unknown[0]!r} in row {row}, which is none of the actions {', '.join(order)}{source}"
            f"{way_out}"
        )
    if of_columns and set(of_columns) == set(order):
        column_of = dict(zip(of_columns, columns, strict=True))
        names = replace(names, probabilities=",".join(column_of[name] for name in order))
    numbers = np.array([order.index(label) for label in labels], np.int64)[codes]
    counts = np.bincount(codes, minlength=len(labels))
    rare = tuple(
        RareAction(label, int(count), int((codes == code).argmax()))
        for code, (label, count) in enumerate(zip(labels, counts, strict=True))
        if not (given or of_columns) and count < _FEW and count < _RARE * len(codes)
    )
    return NamedActions(order, numbers, rare), names


def refuse_beyond(actions: Array, count: int, where: str, first: int) -> None:
    """Refuse a number of an action that has no probability.

    Args:
        actions: (N, ...), as in the file.
        count: number of actions that have probabilities.
        where: the file and the column.
        first: the number of the first action.

    Raises:
        DatasetError: there is one.
    """
    numbers = np.asarray(actions[:]).reshape(-1)
    beyond = (numbers >= first + count) | (numbers < first)
    if beyond.any():
        row = int(beyond.argmax())
        raise DatasetError(
            f"{where} is {numbers[row]} in row {row}, and there are probabilities of the {count} actions from {first} "
            f"to {first + count - 1}; correct it, or name the probabilities of all actions, in the order of their "
            f"numbers"
        )


def _texts_of(columns: Sequence[str], labels: Sequence[str]) -> list[str]:
    """Return the texts that are left of the names of columns without what they begin or end with alike.

    It is decided by the labels: most of the texts must be among them. Empty if they are not.
    """
    best: list[str] = []
    for label in labels:
        for name in columns:
            for begin, end in ((name.removesuffix(label), ""), ("", name.removeprefix(label))):
                if not label or begin == name or end == name:
                    continue
                if not all(other.startswith(begin) and other.endswith(end) for other in columns):
                    continue
                texts = [other[len(begin) : len(other) - len(end)] for other in columns]
                if len(set(texts)) == len(texts) and _shared(texts, labels) > _shared(best, labels):
                    best = texts
    return best if len(columns) > 1 and 2 * _shared(best, labels) > len(columns) else []


def _shared(texts: Sequence[str], labels: Sequence[str]) -> int:
    return len(set(texts) & set(labels))
