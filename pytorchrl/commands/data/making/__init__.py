"""Reproducible data sets: agents are trained and recorded from seeds."""

from pytorchrl.commands.data.making.dataset import Kind, make_dataset

__all__ = ["Kind", "make_dataset"]
