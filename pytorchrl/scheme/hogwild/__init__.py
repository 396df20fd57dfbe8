"""Asynchronous updates by several processes of one machine, with parameters in shared memory."""

from pytorchrl.scheme.hogwild.hogwild_scheme import HogwildScheme

__all__ = ["HogwildScheme"]
