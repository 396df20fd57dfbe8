"""Versions of an actor's weights in shared memory: one process publishes them, others act with them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.scheme.overlap.shared_arrays import ArrayKind, SharedArrays

_UNKNOWN = np.iinfo(np.int64).min


class Progress(NamedTuple):
    """How far a run had come when weights were published."""

    steps: int
    """That schedules follow."""
    target_steps: int
    updates: int
    """Made so far."""


class WeightVersions:
    """The newest versions of an actor's weights, and after which step of the environments each was the newest.

    Weights after ``n`` steps are those that the learner had when it had made all updates that were due by then.

    Args:
        actor: whose weights are published, or replaced by published ones.
        lead: steps by which collecting may be ahead of learning.
        versions: how many are kept.
    """

    def __init__(self, actor: Actor, lead: int, versions: int) -> None:
        self.versions = versions
        self._lead = lead
        self._tensors: dict[torch.dtype, list[Tensor]] = {}
        for tensor in actor.state_dict(keep_vars=True).values():
            self._tensors.setdefault(tensor.dtype, []).append(tensor)
        self._newest_after: NDArray[np.int64]
        """The version after n steps, at n modulo the length."""
        self._progress: NDArray[np.int64]
        """(versions, 3)."""
        self._slots: dict[torch.dtype, list[Tensor]]
        """For each version a vector, of each dtype."""

    def make(self, memory: SharedArrays) -> None:
        """Take the memory, for other processes to map."""
        self._use(memory.make(self._kinds()))

    def map(self, memory: SharedArrays) -> None:
        """Use the memory that another process took."""
        self._use(memory.map(self._kinds()))

    def publish(self, version: int, after: int, progress: Progress) -> None:
        """Copy the actor's weights as the version after so many steps, in the place of the oldest.

        Raises:
            RuntimeError: steps may still be made with the oldest; updates were made that were not due.
        """
        if version - self.versions in {self._at(n) for n in range(max(0, after - self._lead), after)}:
            raise RuntimeError(
                f"Overlapped: weights that collectors may still act with would be overwritten by version {version}; "
                f"make updates when Scheme.collect says that they are due, and no others"
            )
        slot = version % self.versions
        self._progress[slot] = progress
        with torch.no_grad():
            for dtype, tensors in self._tensors.items():
                flat = [tensor.detach().reshape(-1) for tensor in tensors]
                vector = self._slots[dtype][slot]
                if tensors[0].device.type == "cpu":
                    torch.cat(flat, out=vector)
                else:
                    # Joined on the device, so that it is waited for once.
                    vector.copy_(torch.cat(flat))
        self.name(version, after)

    def load(self, version: int) -> Progress:
        """Give the actor the weights of a version."""
        slot = version % self.versions
        with torch.no_grad():
            for dtype, tensors in self._tensors.items():
                parts = torch.split(self._slots[dtype][slot], [tensor.numel() for tensor in tensors])
                for tensor, part in zip(tensors, parts, strict=True):
                    tensor.copy_(part.view(tensor.shape))
        return self.progress_of(version)

    def progress_of(self, version: int) -> Progress:
        """How far the run had come when a version was published."""
        return Progress(*self._progress[version % self.versions].tolist())

    def set_target(self, target_steps: int) -> None:
        """Let the run that versions belong to have another target."""
        self._progress[:, 1] = target_steps

    def name(self, version: int, after: int) -> None:
        """Say which version is the newest after so many steps."""
        self._newest_after[after % len(self._newest_after)] = version

    def version_for(self, step: int) -> int:
        """The version that a step, counted from 0, is made with."""
        return self._at(max(0, step - self._lead))

    def state_dict(self, first: int, after: int) -> dict[str, Any]:
        """What steps from the ``first`` on are made with, as far as it is known after so many steps, and the newest."""
        known = {n: self._at(n) for n in range(min(max(0, first - self._lead), after), after + 1)}
        return {
            "newest_after": known,
            "versions": {
                version: {
                    "progress": list(self.progress_of(version)),
                    "weights": [slots[version % self.versions].clone() for slots in self._slots.values()],
                }
                for version in sorted(set(known.values()))
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        for version, saved in state["versions"].items():
            slot = version % self.versions
            self._progress[slot] = saved["progress"]
            for slots, vector in zip(self._slots.values(), saved["weights"], strict=True):
                slots[slot].copy_(vector)
        self._newest_after.fill(_UNKNOWN)
        for after, version in state["newest_after"].items():
            self.name(version, after)

    def _at(self, after: int) -> int:
        return int(self._newest_after[after % len(self._newest_after)])

    def _kinds(self) -> list[ArrayKind]:
        sizes = {dtype: sum(tensor.numel() for tensor in tensors) for dtype, tensors in self._tensors.items()}
        return [
            # One more than may be asked for while the next is named.
            ArrayKind("int64", (self._lead + 2,)),
            ArrayKind("int64", (self.versions, len(Progress._fields))),
            *(ArrayKind("uint8", (self.versions, size * dtype.itemsize)) for dtype, size in sizes.items()),
        ]

    def _use(self, arrays: list[NDArray[Any]]) -> None:
        self._newest_after, self._progress, *vectors = arrays
        self._slots = {
            dtype: [torch.from_numpy(row).view(dtype) for row in rows]
            for dtype, rows in zip(self._tensors, vectors, strict=True)
        }
