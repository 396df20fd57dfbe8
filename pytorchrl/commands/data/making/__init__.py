"""Data sets that anybody can make anew: agents are trained, and what they do is recorded, from seeds."""

from pytorchrl.commands.data.making.dataset import Kind, make_dataset

__all__ = ["Kind", "make_dataset"]
