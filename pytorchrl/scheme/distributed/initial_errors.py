"""Priorities that collectors give what they collect, before the learner has met it."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.scheme.fitting import CompositionError
from storages.component.factory import Factory, make_factory
from storages.off_policy.nstep_buffer import NStepReplayBuffer
from storages.storage import Storage


def recorder_for(storage: Factory[Any], slice_steps: int, allow_nonfinite: bool) -> Factory[NStepReplayBuffer]:
    """Return the factory of a storage that holds one slice, with windows of as many steps as the main storage's.

    Args:
        storage: the main storage's factory.
        slice_steps: steps of a slice.
        allow_nonfinite: as of storages.
    """
    given = {"n_step": storage.hyper_parameters.get("n_step", 1), "allow_nonfinite": allow_nonfinite}
    factory: Factory[NStepReplayBuffer] = make_factory(NStepReplayBuffer, (slice_steps,), given)
    return factory


@torch.no_grad()
def initial_errors(algorithm: Algorithm, recorder: Storage, steps: int) -> NDArray[np.float32]:
    """(steps, E, 1): the errors of a collector's newest steps, as its own networks have them.

    Horgan et al., "Distributed Prioritized Experience Replay" (Ape-X, arXiv 1803.00933), algorithm 1 and section 3:
    actors compute priorities of what they collect with their local copies of the network. Targets are that network too.

    Args:
        algorithm: the collector's; its target networks become copies of its networks.
        recorder: holds the steps.
        steps: how many.

    Raises:
        CompositionError: the algorithm says no errors.
    """
    for target in algorithm.training.targets.values():
        target.follow(0.0)
    losses = algorithm.losses(algorithm.read(recorder.newest_steps(steps)))
    if losses.errors is None:
        raise CompositionError(
            f"{type(algorithm).__name__} says no errors of which collectors could compute priorities; leave out "
            f"initial_priorities"
        )
    return losses.errors.float().numpy(force=True)
