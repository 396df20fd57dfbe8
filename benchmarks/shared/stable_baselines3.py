"""Models of stable-baselines3 that write no log of theirs, and returns in the format of ours."""

import json
from pathlib import Path
from typing import TypeVar

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger

Model = TypeVar("Model", bound=BaseAlgorithm)


def without_log_folder(model: Model) -> Model:
    """Return a model that logs nothing; by default, it leaves a folder in that of temporary files."""
    model.set_logger(Logger(folder=None, output_formats=[]))
    return model


class Records(BaseCallback):  # type: ignore[misc]
    """Writes the mean return of the episodes that ended since the last line.

    Args:
        file: of JSON lines.
        every: environment steps between lines.
    """

    def __init__(self, file: Path, every: int) -> None:
        super().__init__()
        self._file, self._every = file, every
        self._returns: list[float] = []

    def _on_step(self) -> bool:
        self._returns += [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        if self.num_timesteps % self._every == 0:
            record: dict[str, float] = {"steps": self.num_timesteps}
            if self._returns:
                record |= {"train/return": float(np.mean(self._returns)), "train/episodes": len(self._returns)}
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
            self._returns = []
        return True
