"""Logging of metrics: files, wandb, TensorBoard, the terminal, and plots of learning curves."""

from pytorchrl.logging.metrics_file import MetricsFile, read_metrics
from pytorchrl.logging.pictures.figure_options import FigureOptions
from pytorchrl.logging.pictures.plots import curve_axes, plot_runs
from pytorchrl.logging.progress import ProgressDisplay
from pytorchrl.logging.tables.evaluation_table import read_evaluations
from pytorchrl.logging.tensorboard_writer import TensorBoardWriter
from pytorchrl.logging.wandb_writer import WandbWriter
from pytorchrl.logging.writers import Logger, MetricsWriter, TensorBoard, Wandb, make_writers

__all__ = [
    "FigureOptions",
    "Logger",
    "MetricsFile",
    "MetricsWriter",
    "ProgressDisplay",
    "TensorBoard",
    "TensorBoardWriter",
    "Wandb",
    "WandbWriter",
    "curve_axes",
    "make_writers",
    "plot_runs",
    "read_evaluations",
    "read_metrics",
]
