"""Versions of an actor's weights in shared memory: the learner publishes them, collectors load them."""

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
    """Progress of the run when weights were published."""

    steps: int
    """Environment transitions, for schedules."""
    target_steps: int
    updates: int
    """Number of updates made."""


class WeightVersions:
    """The newest versions of an actor's weights, and which version was the newest after each step.

    The weights after ``n`` steps are the learner's after all updates that were due by then.

    Args:
        actor: its weights are published, or loaded.
        lead: steps by which collection may be ahead of the updates.
        versions: number of versions in memory.
    """

    def __init__(self, actor: Actor, lead: int, versions: int) -> None:
        self.versions = versions
        self._lead = lead
        self._tensors: dict[torch.dtype, list[Tensor]] = {}
        for tensor in actor.state_dict(keep_vars=True).values():
            self._tensors.setdefault(tensor.dtype, []).append(tensor)
        self._newest_after: NDArray[np.int64]
        """The newest version after n steps, at index n modulo the length."""
        self._skipped_after: NDArray[np.int64]
        """The number of single environments' steps without a transition among n steps, at the same index."""
        self._progress: NDArray[np.int64]
        """(versions, 3)."""
        self._slots: dict[torch.dtype, list[Tensor]]
        """For each dtype, one flat vector for each version."""

    def make(self, memory: SharedArrays) -> None:
        """Allocate the memory, for other processes to map."""
        self._use(memory.make(self._kinds()))

    def map(self, memory: SharedArrays) -> None:
        """Map the memory that another process allocated."""
        self._use(memory.map(self._kinds()))

    def publish(self, version: int, after: int, skipped: int, progress: Progress) -> None:
        """Copy the actor's weights over the oldest version, as the newest version after a number of steps.

        Args:
            version: number of the version.
            after: number of steps of all environments.
            skipped: number of single environments' steps among these that made no transition.
            progress: of the run.

        Raises:
            RuntimeError: the oldest version may still be needed, because updates were made that were not due.
        """
        if version - self.versions in {self._at(n) for n in range(max(0, after - self._lead), after)}:
            raise RuntimeError(
                f"Overlapped: version {version} would overwrite weights that collectors may still act with; make only "
                f"the updates that Scheme.collect reports as due"
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
                    # Concatenated on the device, to synchronise with it only once.
                    vector.copy_(torch.cat(flat))
        self.name(version, after, skipped)

    def load(self, version: int) -> Progress:
        """Load the weights of a version into the actor; returns the progress at that version."""
        slot = version % self.versions
        with torch.no_grad():
            for dtype, tensors in self._tensors.items():
                parts = torch.split(self._slots[dtype][slot], [tensor.numel() for tensor in tensors])
                for tensor, part in zip(tensors, parts, strict=True):
                    tensor.copy_(part.view(tensor.shape))
        return self.progress_of(version)

    def progress_of(self, version: int) -> Progress:
        """Return the progress of the run when a version was published."""
        return Progress(*self._progress[version % self.versions].tolist())

    def set_target(self, target_steps: int) -> None:
        """Set the run's target in all versions."""
        self._progress[:, 1] = target_steps

    def name(self, version: int, after: int, skipped: int) -> None:
        """Record the newest version after a number of steps, of which ``skipped`` made no transition."""
        index = after % len(self._newest_after)
        self._newest_after[index], self._skipped_after[index] = version, skipped

    def version_for(self, step: int) -> int:
        """Return the version that a step, counted from 0, is made with."""
        return self._at(max(0, step - self._lead))

    def skipped_before(self, step: int) -> int:
        """Return how many environments' steps without a transition are known when a step is made."""
        return int(self._skipped_after[max(0, step - self._lead) % len(self._skipped_after)])

    def state_dict(self, first: int, to_make: int, after: int) -> dict[str, Any]:
        """Return the versions of steps from ``first`` on.

        Args:
            first: of the steps whose versions are asked for later.
            to_make: first of the steps that are still to be made, which need the weights.
            after: number of steps after which versions are known; the newest version is included.
        """
        steps = range(min(max(0, first - self._lead), after), after + 1)
        known = {n: self._at(n) for n in steps}
        needed = {known[n] for n in steps if n >= min(max(0, to_make - self._lead), after)}
        return {
            "newest_after": known,
            "skipped_after": {n: int(self._skipped_after[n % len(self._skipped_after)]) for n in steps},
            "versions": {
                version: {
                    "progress": list(self.progress_of(version)),
                    "weights": [slots[version % self.versions].clone() for slots in self._slots.values()]
                    if version in needed
                    else None,
                }
                for version in sorted(set(known.values()))
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        for version, saved in state["versions"].items():
            slot = version % self.versions
            self._progress[slot] = saved["progress"]
            if saved["weights"] is None:
                continue
            for slots, vector in zip(self._slots.values(), saved["weights"], strict=True):
                slots[slot].copy_(vector)
        self._newest_after.fill(_UNKNOWN)
        for after, version in state["newest_after"].items():
            self.name(version, after, state["skipped_after"][after])

    def _at(self, after: int) -> int:
        return int(self._newest_after[after % len(self._newest_after)])

    def _kinds(self) -> list[ArrayKind]:
        sizes = {dtype: sum(tensor.numel() for tensor in tensors) for dtype, tensors in self._tensors.items()}
        return [
            # One entry each more than `lead + 1`, as the next is recorded while the others may be read.
            ArrayKind("int64", (self._lead + 2,)),
            ArrayKind("int64", (self._lead + 2,)),
            ArrayKind("int64", (self.versions, len(Progress._fields))),
            *(ArrayKind("uint8", (self.versions, size * dtype.itemsize)) for dtype, size in sizes.items()),
        ]

    def _use(self, arrays: list[NDArray[Any]]) -> None:
        self._newest_after, self._skipped_after, self._progress, *vectors = arrays
        self._slots = {
            dtype: [torch.from_numpy(row).view(dtype) for row in rows]
            for dtype, rows in zip(self._tensors, vectors, strict=True)
        }
