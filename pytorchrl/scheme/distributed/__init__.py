"""Many processes that work for one run, with Ray; it is imported only where such a scheme is made."""

from pytorchrl.scheme.distributed.errors import WorkerDiedError
from pytorchrl.scheme.distributed.ray_scheme import RayScheme

__all__ = ["RayScheme", "WorkerDiedError"]
