"""Replay buffers and rollout storages: they hold transitions as arrays and yield batches of tensors.

Depends on numpy, numba, torch and zarr alone. Field names are in :mod:`storages.transition`; the interface of all
storages is :class:`Storage`.
"""

from storages.names_on_demand import names_on_demand as _names_on_demand

__getattr__, __dir__, __all__ = _names_on_demand(__name__)
