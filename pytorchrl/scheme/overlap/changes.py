"""Changed hyper-parameters of the learner's algorithm, and the steps that collectors make with them."""

import pickle
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from storages.component.changeable import as_plain_data, from_plain_data


class ChangesAfter(NamedTuple):
    """All hyper-parameters that differ from those as made, after a number of steps of all environments."""

    after: int
    changes: Mapping[str, Any]


class ChangeHistory:
    """The changed hyper-parameters that steps ahead of the updates are made with.

    As with weights, step n is made with the hyper-parameters of the learner after step n - D.

    Args:
        lead: D, steps by which collection may be ahead of the updates.
    """

    def __init__(self, lead: int) -> None:
        self._lead = lead
        self._sets: deque[ChangesAfter] = deque()

    def differ(self, changes: Mapping[str, Any]) -> bool:
        """Whether changes differ from the latest ones."""
        return changes != (self._sets[-1].changes if self._sets else {})

    def record(self, after: int, changes: Mapping[str, Any]) -> None:
        """Note the changes after a number of steps."""
        self._sets.append(ChangesAfter(after, changes))

    def take(self, sets: Sequence[ChangesAfter]) -> None:
        """Take the sets that :meth:`since` returned in the learner's process."""
        self._sets = deque(sets)

    def since(self, step: int) -> list[ChangesAfter]:
        """Return the sets of changes that steps from number ``step`` on are made with."""
        sets = list(self._sets)
        return sets[max(0, sum(self._holds(one, step) for one in sets) - 1) :]

    def newest_for(self, step: int) -> Mapping[str, Any] | None:
        """Return the changes that a step is made with, and forget earlier ones; None if they are those before."""
        newest = None
        while self._sets and self._holds(self._sets[0], step):
            newest = self._sets.popleft().changes
        return newest

    def state_dict(self, step: int, cls: type[Any]) -> list[list[Any]]:
        """Return what :meth:`since` returns for a step as plain data; ``cls`` is the class of the algorithm."""
        return [[after, as_plain_data(changes, cls)] for after, changes in self.since(step)]

    def load_state_dict(self, state: Sequence[Sequence[Any]], cls: type[Any], present: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`; functions are those of the ``present`` changes.

        Raises:
            ValueError: a value is not one of its hyper-parameter.
        """
        self._sets = deque(ChangesAfter(int(after), from_plain_data(saved, cls, present)) for after, saved in state)

    def _holds(self, one: ChangesAfter, step: int) -> bool:
        return one.after <= max(0, step - self._lead)


def refuse_unsendable(changes: Mapping[str, Any], owner: str) -> None:
    """Refuse changed hyper-parameters that cannot be sent to another process.

    Raises:
        TypeError: the message names the hyper-parameter, of the ``owner``: a scheme and its algorithm.
    """
    for name, value in changes.items():
        try:
            pickle.dumps(value)
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            raise TypeError(
                f"{owner}.{name} was changed to {value!r}, which cannot be sent to the collector "
                f"processes: {error}; define functions in a module, not as a lambda"
            ) from error
