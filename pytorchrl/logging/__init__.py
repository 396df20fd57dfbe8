"""Logging of metrics: files, wandb, TensorBoard, the terminal, and plots of learning curves."""

from pytorchrl.logging.metrics_file import MetricsFile, read_metrics
from pytorchrl.logging.pictures.plots import plot_runs
from pytorchrl.logging.progress import ProgressDisplay
from pytorchrl.logging.tables.evaluation_table import read_evaluations
from pytorchrl.logging.wandb_writer import WandbWriter
from pytorchrl.logging.writers import Logger, MetricsWriter, TensorBoard, TensorBoardWriter, Wandb, make_writers

__all__ = [
    "Logger",
    "MetricsFile",
    "MetricsWriter",
    "ProgressDisplay",
    "TensorBoard",
    "TensorBoardWriter",
    "Wandb",
    "WandbWriter",
    "make_writers",
    "plot_runs",
    "read_evaluations",
    "read_metrics",
]
