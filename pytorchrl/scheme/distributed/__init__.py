"""Distributed schemes with Ray, which is imported only when such a scheme is made.

The functions are presets, named after their papers: ``prl.RayScheme(**prl.distributed.impala(), ...)``.
"""

from pytorchrl.scheme.distributed.plan import WorkerDiedError
from pytorchrl.scheme.distributed.presets import (
    DistributedPreset,
    a3c,
    ape_x,
    dd_ppo,
    gorila,
    impala,
    nsq,
    r2d2,
    sac_distributed,
)
from pytorchrl.scheme.distributed.ray_scheme import RayScheme

__all__ = [
    "DistributedPreset",
    "RayScheme",
    "WorkerDiedError",
    "a3c",
    "ape_x",
    "dd_ppo",
    "gorila",
    "impala",
    "nsq",
    "r2d2",
    "sac_distributed",
]
