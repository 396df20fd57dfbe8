"""Models of stable-baselines3 that write no log."""

from typing import TypeVar

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.logger import Logger

Model = TypeVar("Model", bound=BaseAlgorithm)


def without_log_folder(model: Model) -> Model:
    """Return a model that logs nothing; by default, it leaves a folder in that of temporary files."""
    model.set_logger(Logger(folder=None, output_formats=[]))
    return model
