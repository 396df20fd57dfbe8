"""Collection in other processes of the same machine, overlapped with the updates of this one."""

from pytorchrl.scheme.overlap.forked_process import CollectorError
from pytorchrl.scheme.overlap.overlapped import Overlapped
from pytorchrl.scheme.overlap.overlapped_collector import OverlappedCollector

__all__ = ["CollectorError", "Overlapped", "OverlappedCollector"]
