"""Initial priorities, computed by collectors for the transitions that they collect."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.scheme.compatibility import CompositionError
from storages.storage import Storage


@torch.no_grad()
def initial_errors(algorithm: Algorithm, recorder: Storage, steps: int) -> NDArray[np.float32]:
    """Return the TD errors of a collector's newest steps by its own networks, (steps, E, 1).

    Horgan et al., "Distributed Prioritized Experience Replay" (Ape-X, arXiv 1803.00933), algorithm 1 and section 3:
    actors compute initial priorities with their local copy of the network. It serves as the target network too.

    Args:
        algorithm: the collector's; its target networks become copies of its networks.
        recorder: holds the steps.
        steps: how many.

    Raises:
        CompositionError: the algorithm returns no errors.
    """
    for target in algorithm.training.targets.values():
        target.update(0.0)
    losses = algorithm.losses(algorithm.read(_on(algorithm.device, recorder.newest_steps(steps))))
    if losses.errors is None:
        raise CompositionError(
            f"{type(algorithm).__name__} returns no errors from which collectors could compute priorities; leave out "
            f"initial_priorities"
        )
    return losses.errors.float().numpy(force=True)


def _on(device: torch.device, batch: Any) -> Any:
    if isinstance(batch, dict):
        return {name: _on(device, part) for name, part in batch.items()}
    return batch.to(device)
