"""Loggers of metrics, beside the run folder's own file."""

import difflib
import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

from numpy.typing import NDArray

from pytorchrl.logging.tensorboard_writer import TensorBoardWriter
from pytorchrl.logging.wandb_writer import WandbWriter
from storages.component.other_names import OtherNames
from storages.component.setting import Setting


@runtime_checkable
class MetricsWriter(Protocol):
    """Writes the metrics of a run; a class of one's own with these methods is a logger.

    A writer may have :class:`HistogramWriter`'s and :class:`VideoWriter`'s methods as well.
    """

    def write(self, steps: int, metrics: Mapping[str, float]) -> None:
        """Write the values measured after ``steps`` environment transitions."""

    def close(self) -> None:
        """Finish; nothing is written afterwards."""


@runtime_checkable
class HistogramWriter(Protocol):
    """Writes histograms of a run."""

    def write_histograms(self, steps: int, values: Mapping[str, NDArray[Any]]) -> None:
        """Write a histogram of each array after ``steps`` environment transitions."""


@runtime_checkable
class VideoWriter(Protocol):
    """Writes videos of a run."""

    def write_video(self, steps: int, name: str, path: Path) -> None:
        """Write a video recorded after ``steps`` environment transitions."""


class LoggerSetting(Setting, ABC):
    """Settings from which a run, and a resumed one, makes a writer of its own."""

    package: str
    """The package that the writer needs."""

    @abstractmethod
    def make_writer(self, log_dir: Path, config: Mapping[str, object], resumed_at: int | None) -> MetricsWriter:
        """Make the writer.

        Args:
            log_dir: the run folder, which exists.
            config: the composition of the run.
            resumed_at: environment transitions at which a resumed run continues; None where the run is new.
        """


Logger: TypeAlias = str | LoggerSetting | MetricsWriter
"""A logger of ``log_to``: a name, settings, or an object of a user's."""


@dataclass(frozen=True)
class TensorBoard(LoggerSetting):
    """Logs to TensorBoard, into ``tensorboard`` of the run folder."""

    package = "tensorboard"

    def make_writer(self, log_dir: Path, config: Mapping[str, object], resumed_at: int | None) -> MetricsWriter:
        """Make the writer; a resumed run hides the records of later steps."""
        return TensorBoardWriter(log_dir, resumed_at, config)


@dataclass(frozen=True)
class Wandb(LoggerSetting):
    """Logs to Weights & Biases, offline unless wandb's own settings say otherwise (see :class:`WandbWriter`).

    Where ``wandb.init`` was called already, or a sweep agent made the run, that run keeps its own. A resumed run stays
    in the project in which it began.

    Args:
        project: of wandb; None takes that of wandb's settings, or "pytorchrl".
        entity: the user or team; None leaves it to wandb's settings.
        group: of runs that wandb shows together; None takes runs that differ only in their seed.
        run_name: the name that wandb shows; None takes one such as ``PPO-CartPole-v1-seed-1``. ``train`` with several
            seeds adds ``-seed-1`` to it, and ``sweep`` the values that it varies, too.
        tags: of the run, beside those of WANDB_TAGS and the names of its algorithm, environment and storage.
    """

    project: str | None = None
    entity: str | None = None
    group: str | None = None
    run_name: str | None = None
    tags: tuple[str, ...] = ()

    package = "wandb"
    other_names: ClassVar[OtherNames] = {
        "name": {"": "run_name"},
        "config": {"": "no setting: the composition of the run is its config"},
        "mode": {"": "WANDB_MODE, a variable of the environment"},
        "job_type": {"": "WANDB_JOB_TYPE, a variable of the environment"},
        "notes": {"": "WANDB_NOTES, a variable of the environment"},
        "dir": {"": "no setting: offline files are in the run folder"},
        "id": {"": "no setting: the id is kept in the run folder"},
        "resume": {"": "no setting: a resumed run continues its wandb run"},
    }

    def make_writer(self, log_dir: Path, config: Mapping[str, object], resumed_at: int | None) -> MetricsWriter:
        """Make the writer; a resumed run continues the wandb run."""
        given = {"project": self.project, "entity": self.entity, "group": self.group, "tags": self.tags}
        options = {name: value for name, value in given.items() if value}
        return WandbWriter(log_dir, config, self.run_name, options, resumed_at)


def checked_loggers(loggers: Sequence[Logger]) -> list[LoggerSetting | MetricsWriter]:
    """Return the loggers with settings in place of names, each once.

    Raises:
        ModuleNotFoundError: a package is not installed; the message says how to get it.
        TypeError: one is no logger.
        ValueError: a name is not known, or two settings would write to the same place.
    """
    if isinstance(loggers, str):
        raise ValueError(f"Learner: log_to must be a list of names, got {loggers!r}; write log_to=[{loggers!r}]")
    if not isinstance(loggers, Sequence):
        raise TypeError(f"Learner: log_to must be a list, got {loggers!r}; write log_to=[...]")
    checked: list[LoggerSetting | MetricsWriter] = []
    for number, given in enumerate(loggers):
        logger = _named(given) if isinstance(given, str) else given
        if isinstance(logger, LoggerSetting):
            if any(logger == other for other in checked):
                continue
            if any(type(logger) is type(other) for other in checked):
                raise ValueError(f"log_to: two {type(logger).__name__} would log to the same place; leave one out")
            if not _is_installed(logger.package):
                raise ModuleNotFoundError(f"log_to={logger.package!r} needs a package: pip install {logger.package}")
        elif isinstance(logger, type) or not isinstance(logger, MetricsWriter):
            raise TypeError(
                f"Learner: log_to[{number}] must be a name, prl.TensorBoard(), prl.Wandb(), or an object with the "
                f"methods write(steps, metrics) and close(), got {logger!r}"
            )
        elif any(logger is other for other in checked):
            continue
        checked.append(logger)
    return checked


def make_writers(
    loggers: Sequence[Logger], log_dir: Path, config: Mapping[str, object], *, resumed_at: int | None = None
) -> list[MetricsWriter]:
    """Make the writers of some loggers; a writer of a user's is returned as it is.

    Args:
        loggers: as ``log_to`` of :class:`Learner`.
        log_dir: the run folder, made where there is none.
        config: the composition of the run, which is logged with it.
        resumed_at: environment transitions at which a resumed run continues; None where the run is new.

    Raises:
        ModuleNotFoundError: a package is not installed; the message says how to get it.
        TypeError: one is no logger.
        ValueError: a name is not known, or two settings would write to the same place.
    """
    checked = checked_loggers(loggers)
    log_dir.mkdir(parents=True, exist_ok=True)
    with ExitStack() as made:
        writers: list[MetricsWriter] = []
        for logger in checked:
            if isinstance(logger, LoggerSetting):
                writer = logger.make_writer(log_dir, config, resumed_at)
                made.callback(writer.close)
            else:
                writer = logger
            writers.append(writer)
        made.pop_all()  # all are made: they are the caller's to close
    return writers


LOGGERS: Mapping[str, LoggerSetting] = {"wandb": Wandb(), "tensorboard": TensorBoard()}
"""Loggers that ``log_to`` takes by name."""


def _named(name: str) -> LoggerSetting:
    if name not in LOGGERS:
        near = difflib.get_close_matches(name, LOGGERS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"log_to: unknown destination {name!r}{hint} (choose from {', '.join(LOGGERS)})")
    return LOGGERS[name]


def _is_installed(package: str) -> bool:
    # A folder of that name, such as wandb leaves behind, is found as well, but has no origin.
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.origin is not None
