"""Collecting in other processes of the same machine, while this one learns."""

from pytorchrl.scheme.overlap.overlapped import Overlapped
from pytorchrl.scheme.overlap.overlapped_collector import OverlappedCollector
from pytorchrl.scheme.overlap.process import CollectorError

__all__ = ["CollectorError", "Overlapped", "OverlappedCollector"]
