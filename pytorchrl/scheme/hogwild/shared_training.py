"""The training state of an algorithm, in shared memory, where several processes update it without a lock."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.optimizers import FlatParameters
from pytorchrl.agent.optimizers.elementwise import ElementwiseStepper
from pytorchrl.scheme.compatibility import CompositionError
from pytorchrl.scheme.overlap.shared_arrays import ArrayKind, SharedArrays

_UPDATES = "updates"


class SharedTraining:
    """Moves parameters, averages of optimisers, target networks and counters into memory that processes share.

    Updates are lock-free: Recht et al., "Hogwild!" (arXiv 1106.5730). Each process has separate counts of its steps
    and updates, so that none is lost.

    Args:
        algorithm: one of its copies in the processes; all are made from the same factories.
        processes: number of processes that update it.

    Raises:
        CompositionError: a part of the training state cannot be shared.
    """

    steps: NDArray[np.int64]
    """(processes + 1,): environment transitions of each process; the last are those before the run was resumed."""
    updates: NDArray[np.int64]
    """(processes + 1,): updates of each process, likewise."""
    _others: NDArray[np.int64]
    """The algorithm's other counters, in their order."""

    def __init__(self, algorithm: Algorithm, processes: int) -> None:
        check_sharing(algorithm)
        self._algorithm, self._processes = algorithm, processes
        training = algorithm.training
        steppers = [group.stepper for group in training.groups.values()]
        self._steppers = [stepper for stepper in steppers if isinstance(stepper, ElementwiseStepper)]
        self._targets = [target.flat for target in training.targets.values()]
        self._names = [name for name in training.counters if name != _UPDATES]

    def make(self, memory: SharedArrays) -> None:
        """Allocate the memory, with the algorithm's present values, for other processes to map."""
        values, counters = self._vectors(), self._algorithm.training.counters
        arrays = memory.make(self._kinds())
        self._use(arrays)
        for vector, value in zip(self._vectors(), values, strict=True):
            vector.copy_(value)
        self.restore(counters, 0)

    def map(self, memory: SharedArrays) -> None:
        """Let the algorithm's values lie in the memory that another process allocated."""
        self._use(memory.map(self._kinds()))

    def restore(self, counters: Mapping[str, int], steps: int) -> None:
        """Set the counts to those of a resumed run."""
        self.steps[:], self.updates[:] = 0, 0
        self.steps[-1], self.updates[-1] = steps, counters[_UPDATES]
        self._others[:] = [counters[name] for name in self._names]

    def counters(self) -> dict[str, int]:
        """Return the algorithm's counters, with the updates of all processes."""
        others = zip(self._names, self._others.tolist(), strict=True)
        return {_UPDATES: int(self.updates.sum()), **dict(others)}

    def apply(self, gradients: Mapping[str, Tensor], process: int) -> None:
        """Make an optimiser step on the shared values, and update the target networks that are due."""
        training = self._algorithm.training
        training.counters = self.counters()
        before = training.counters[_UPDATES]
        self._algorithm.apply_gradients(gradients)
        self.updates[process] += training.counters[_UPDATES] - before
        self._others[:] = [training.counters[name] for name in self._names]

    def copy_to(self, algorithm: Algorithm) -> None:
        """Copy parameters, target networks and counters into an algorithm of the process's own."""
        for ours, shared in zip(_flat_parameters(algorithm), _flat_parameters(self._algorithm), strict=True):
            ours.vector.copy_(shared.vector)
        algorithm.training.counters = self.counters()

    def _vectors(self) -> list[Tensor]:
        return [
            *(vector for stepper in self._steppers for vector in stepper.vectors),
            *(target.vector for target in self._targets),
        ]

    def _use(self, arrays: list[NDArray[Any]]) -> None:
        self.steps, self.updates, self._others, *flat = arrays
        vectors = [
            torch.from_numpy(array).view(present.dtype) for array, present in zip(flat, self._vectors(), strict=True)
        ]
        for stepper in self._steppers:
            number = len(stepper.vectors)
            stepper.use(vectors[:number])
            vectors = vectors[number:]
        for target, vector in zip(self._targets, vectors, strict=True):
            target.use(vector)

    def _kinds(self) -> list[ArrayKind]:
        return [
            ArrayKind("int64", (self._processes + 1,)),
            ArrayKind("int64", (self._processes + 1,)),
            ArrayKind("int64", (len(self._names),)),
            *(ArrayKind("uint8", (vector.numel() * vector.element_size(),)) for vector in self._vectors()),
        ]


def _flat_parameters(algorithm: Algorithm) -> list[FlatParameters]:
    """Return the vectors of all parameter groups and target networks."""
    training = algorithm.training
    return [*(group.flat for group in training.groups.values()), *(one.flat for one in training.targets.values())]


def check_sharing(algorithm: Algorithm) -> None:
    """Check that all training state of an algorithm can lie in shared memory.

    Raises:
        CompositionError: the message names the part and a way out.
    """
    name = type(algorithm).__name__
    for group in algorithm.training.groups.values():
        if not isinstance(group.stepper, ElementwiseStepper):
            raise CompositionError(
                f"HogwildScheme: the processes of {name} cannot share the state of {algorithm.optimizer}; give it "
                f"RMSprop(alpha=0.99, eps=1e-5, centered=False), as in the paper, or SGD()"
            )
    parameters = {each for each, _ in algorithm.actor.named_parameters(remove_duplicate=False)}
    statistics = [each for each in algorithm.actor.state_dict() if each not in parameters]
    if statistics:
        raise CompositionError(
            f"HogwildScheme: the networks keep statistics that are no parameters, such as {statistics[0]}, which the "
            f"processes would not share; leave out normalize_observations, or take gradient workers of RayScheme"
        )
