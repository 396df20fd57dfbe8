"""Writer of metrics to Weights & Biases, offline unless the user's own settings say otherwise."""

import json
import logging
import math
import os
import re
import secrets
import shlex
import ssl
from collections.abc import Mapping
from http.client import HTTPException
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

import numpy as np
from numpy.typing import NDArray

from pytorchrl.logging.metrics_file import read_metrics
from pytorchrl.logging.run_labels import group_of_run, name_of_run, settings_by_option, tags_of_run
from pytorchrl.logging.tables.evaluation_table import COLUMNS, evaluation_names, evaluations_of
from pytorchrl.run_files import RunFiles
from pytorchrl.terminal import tell
from storages.files import read_text, refuse_link, write_atomically

if TYPE_CHECKING:
    import wandb

Mode: TypeAlias = Literal["online", "offline", "disabled", "shared"]

_PROJECT = "pytorchrl"
"""Where neither the caller nor wandb's settings name a project."""
_PLACES = ("entity", "project")
_LABELS = (*_PLACES, "group", "name")
_RETURN = re.compile(r"(train|test(/.+)?)/return")
_PARTS = "offline-run-*"
"""Folders of the parts of an offline run."""
_BINS = 64
_SECONDS_TO_ANSWER = 3.0
_SECONDS_TO_START = 10.0
_SECONDS_TO_FINISH = 30.0

_logger = logging.getLogger(__name__)


class WandbWriter:
    """Logs a run to wandb, from the run folder.

    The mode is the user's (WANDB_MODE or wandb's settings files); without one it is offline, or online where a sweep
    agent has started the process. There is never a login prompt: without credentials, or without an answer of the
    server, online becomes offline with a warning. The run's id is kept in ``wandb_run_id.txt``, and its project, group,
    name and tags in ``wandb_run.json``, so that a resumed run continues the same wandb run although settings of
    wandb may have changed; an offline run is then stored in parts, which ``wandb sync`` joins.

    Where ``wandb.init`` was called already, the first run folder is logged to that run, and the caller finishes it. In
    a process of a sweep agent, the run is the agent's.

    The run's config has the names of ``train``'s options (``algorithm.lr``), which are those of sweeps. Runs that
    differ only in their seed are a group, and the summary of a return is its largest value and its last. In a sweep of
    wandb, whose search reads no nested values, it is the last one alone.

    Args:
        log_dir: the run folder, which must exist.
        config: the composition of the run.
        run_name: the name that wandb shows; None takes that of wandb's settings, or one such as
            ``PPO-CartPole-v1-seed-1``; a sweep names its runs itself.
        options: further arguments of ``wandb.init``, such as ``project``. Without them, and without wandb's settings of
            them, the project is "pytorchrl", and the group is that of the composition. Tags are added to those that
            name the algorithm, the environment and the storage.
        resumed_at: environment transitions at which a resumed run continues; None where the run is new.

    Raises:
        ValueError: another run folder is logged to the agent's run.
    """

    def __init__(
        self,
        log_dir: Path,
        config: Mapping[str, object],
        run_name: str | None = None,
        options: Mapping[str, Any] | None = None,
        resumed_at: int | None = None,
    ) -> None:
        import wandb  # slow to import, and seldom needed

        files = RunFiles(log_dir)
        self._wandb_folder, self._metrics_file = files.wandb_folder, files.metrics_file
        self._id_file, self._labels_file = files.wandb_id_file, files.wandb_labels_file
        for path in (self._wandb_folder, self._id_file, self._labels_file):
            refuse_link(path)
        self._log_dir = log_dir
        self._config = dict(config)
        self._name = run_name
        self._options = dict(options or {})
        self._is_resumed = resumed_at is not None
        self._steps: int | None = None
        self._largest = {} if resumed_at is None else self._largest_returns(resumed_at)
        self._returns: set[str] = set()
        active = wandb.run
        self._is_users = active is not None and _folders.get(active.id, log_dir) == log_dir
        if active is not None and self._is_users:
            self._run = active
        else:
            self._run = self._started(mode_of(wandb.setup().settings))
        self._log_settings()
        # Training and evaluation log at the same step, so wandb's own step, which must increase, does not fit.
        self._run.define_metric("*", step_metric="steps")
        _folders[self._run.id] = log_dir
        self._keep_id(self._run.id)
        self._keep_labels()

    @property
    def run(self) -> "wandb.Run":
        """The wandb run that is logged to."""
        return self._run

    def write(self, steps: int, metrics: Mapping[str, float]) -> None:
        """Log the metrics against environment steps."""
        self._steps = steps
        self._run.log({**metrics, "steps": steps})
        if not self._run.sweep_id:
            self._summarise({name: value for name, value in metrics.items() if _RETURN.fullmatch(name)})

    def _summarise(self, returns: Mapping[str, float]) -> None:
        """Write the largest and the last value of each return, also of the parts of a resumed run before this one."""
        for name, value in returns.items():
            if name not in self._returns:
                self._returns.add(name)
                # wandb's own summary begins anew in each process.
                self._run.define_metric(name, step_metric="steps", summary="none")
            if math.isfinite(value):
                self._largest[name] = max(value, self._largest.get(name, value))
        if returns:
            self._run.summary.update(
                {name: {"max": self._largest.get(name, value), "last": value} for name, value in returns.items()}
            )

    def _largest_returns(self, until: int) -> dict[str, float]:
        """Return the largest value of each return that the run has logged until some steps."""
        largest: dict[str, float] = {}
        for record in read_metrics(self._metrics_file) if self._metrics_file.is_file() else []:
            if (record.get("steps") or 0) <= until:
                for name, value in record.items():
                    if value is not None and math.isfinite(value) and _RETURN.fullmatch(name):
                        largest[name] = max(value, largest.get(name, value))
        return largest

    def write_histograms(self, steps: int, values: Mapping[str, NDArray[Any]]) -> None:
        """Log a histogram for each array."""
        import wandb

        self._steps = steps
        histograms = {name: wandb.Histogram(np_histogram=np.histogram(array, _BINS)) for name, array in values.items()}
        self._run.log({**histograms, "steps": steps})

    def write_video(self, steps: int, name: str, path: Path) -> None:
        """Log a video, of which wandb takes a copy."""
        import wandb

        self._steps = steps
        # wandb annotates the format as a Literal, which has both of ours.
        kind: Any = path.suffix.removeprefix(".")
        self._run.log({name: wandb.Video(str(path), format=kind), "steps": steps})

    def close(self) -> None:
        """Log a table of all evaluations, and finish the wandb run, unless it is the user's.

        A resumed run that had nothing left to measure logs nothing. An offline run says how it is uploaded.
        """
        if self._steps is not None:
            self._log_evaluations()
        _open_runs.pop(self._run.id, None)
        if not self._is_users:
            is_offline = self._run.offline
            self._run.finish()
            if is_offline:
                tell(f"wandb: logged offline; upload it by: wandb sync {shlex.quote(str(self._wandb_folder))}/{_PARTS}")

    def _log_evaluations(self) -> None:
        import wandb

        records = read_metrics(self._metrics_file) if self._metrics_file.is_file() else []
        for name in evaluation_names(records):
            rows = [[row.get(column) for column in COLUMNS] for row in evaluations_of(records, name)]
            table = wandb.Table(columns=list(COLUMNS), data=rows)
            self._run.log({"evaluations" if name is None else f"evaluations/{name}": table, "steps": self._steps})

    def _log_settings(self) -> None:
        given = settings_by_option(self._config)
        if self._run.sweep_id:
            # wandb refuses to change what the sweep has set, with a warning for each.
            given = {name: value for name, value in given.items() if name not in self._run.config}
        # The method of wandb has no annotations.
        self._run.config.update(given, allow_val_change=True)  # type: ignore[no-untyped-call]

    def _started(self, mode: Mode) -> "wandb.Run":
        """Start a run that this writer finishes."""
        import wandb

        try:
            return self._start(mode)
        except (wandb.errors.Error, TimeoutError) as error:
            if mode not in ("online", "shared"):
                raise
            _logger.warning("wandb: no online run could be started, logging offline: %s", " ".join(str(error).split()))
            # wandb's service does not release the id of a run that it could not start.
            self._id_file.unlink(missing_ok=True)
            return self._start("offline")

    def _start(self, mode: Mode) -> "wandb.Run":
        import wandb

        of_process = wandb.setup().settings
        settings = wandb.Settings(
            silent=True,
            console="off",
            # A separate run, although this process may log others.
            reinit="create_new",
            init_timeout=_SECONDS_TO_START,
            # What is not sent by then is in the run folder, for `wandb sync`.
            finish_timeout=_SECONDS_TO_FINISH,
        )
        own = {"dir": str(self._log_dir), "mode": mode, "settings": settings}
        arguments: dict[str, Any] = self._labels(of_process) | own
        if of_process.sweep_id and of_process.run_id:
            # The agent has chosen the id, and waits for that run.
            run_id = of_process.run_id
            if _folders.get(run_id, self._log_dir) != self._log_dir:
                raise ValueError(
                    f"log_to: the sweep's run {run_id} already logs {_folders[run_id]}, and {self._log_dir} cannot be "
                    f"logged to it as well; train one run per process, and let the sweep choose the seed"
                )
        else:
            run_id = self._kept_id()
            arguments |= {"id": run_id, "resume": "allow"}
        if run_id in _open_runs:
            # The first writer of the folder was not closed, and wandb refuses two open runs with one id.
            _open_runs.pop(run_id).finish()
        run = wandb.init(**arguments)
        _open_runs[run.id] = run
        return run

    def _labels(self, of_process: "wandb.Settings") -> dict[str, Any]:
        """Return the place, the name, group and tags: those given, else the run's, else wandb's settings, else ours."""
        labels = dict(self._options) | ({} if self._name is None else {"name": self._name})
        # An agent has chosen where the runs of its sweep are.
        kept = self._kept_labels() if self._is_resumed and not of_process.sweep_id else {}
        for place in _PLACES:
            asked, began = labels.get(place), kept.get(place)
            if asked and began and asked != began:
                # The id of the run means another run elsewhere.
                _logger.warning(
                    "wandb: the run stays in the %s %s, not %s; without %s, another wandb run begins",
                    *(place, began, labels.pop(place), self._id_file),
                )
        labels = kept | labels
        if not of_process.project:
            labels.setdefault("project", _PROJECT)
        if not of_process.run_group:
            labels.setdefault("group", group_of_run(self._config))
        if not (of_process.run_name or of_process.sweep_id):
            labels.setdefault("name", name_of_run(self._config, self._log_dir))
        # Those of WANDB_TAGS too, by which a sweep says what it varies.
        tags = [*labels.get("tags", ()), *(of_process.run_tags or ()), *tags_of_run(self._config)]
        return labels | {"tags": list(dict.fromkeys(tags))}

    def _kept_labels(self) -> dict[str, Any]:
        """Return the labels with which the run began; none where they cannot be read, or its id is gone."""
        if not (self._labels_file.is_file() and self._id_file.is_file()):
            return {}
        try:
            found = json.loads(read_text(self._labels_file))
        except (OSError, ValueError, RecursionError) as error:
            _logger.warning("wandb: %s cannot be read: %s", self._labels_file, error)
            return {}
        if not isinstance(found, dict):
            return {}
        kept: dict[str, Any] = {name: found[name] for name in _LABELS if isinstance(found.get(name), str)}
        tags = found.get("tags")
        is_list = isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)
        return kept | ({"tags": tags} if is_list else {})

    def _keep_labels(self) -> None:
        if not self._run.disabled:
            labels = {name: value for name in _LABELS if (value := getattr(self._run, name))}
            labels["tags"] = list(self._run.tags or ())
            write_atomically(self._labels_file, f"{json.dumps(labels, indent=2)}\n".encode())

    def _kept_id(self) -> str:
        if not self._id_file.exists():
            self._keep_id(secrets.token_hex(4))
        return self._id_file.read_text().strip()

    def _keep_id(self, run_id: str) -> None:
        write_atomically(self._id_file, f"{run_id}\n".encode())


_open_runs: dict[str, "wandb.Run"] = {}
_folders: dict[str, Path] = {}
"""The run folder that was logged to each wandb run in this process, by run id."""


def mode_of(settings: "wandb.Settings") -> Mode:
    """Return the mode of the user's settings, or "offline" where it needs a login prompt or a long wait."""
    if "mode" not in settings.model_fields_set:
        # A sweep agent has logged in, and waits for the metrics of its runs.
        return _reachable("online", settings) if settings.sweep_id else "offline"
    # Older names of two modes.
    mode = cast("Mode", {"run": "online", "dryrun": "offline"}.get(settings.mode, settings.mode))
    return _reachable(mode, settings) if mode in ("online", "shared") else mode


def _reachable(mode: Mode, settings: "wandb.Settings") -> Mode:
    """Return the mode where there are credentials and a server answers; else "offline", with a warning."""
    if not _has_credentials(settings):
        _logger.warning("wandb: mode is %s, but no API key is configured; logging offline", mode)
        return "offline"
    if not _answers(settings.base_url):
        _logger.warning("wandb: mode is %s, but %s does not answer; logging offline", mode, settings.base_url)
        return "offline"
    return mode


def _has_credentials(settings: "wandb.Settings") -> bool:
    """Whether wandb will find credentials; where it does not, it prompts for them."""
    if settings.api_key or os.environ.get("WANDB_API_KEY") or settings.identity_token_file:
        return True
    files = [os.environ["NETRC"]] if "NETRC" in os.environ else ["~/.netrc", "~/_netrc"]
    path = next((path for path in (Path(file).expanduser() for file in files) if path.is_file()), None)
    if path is None:
        return False
    try:
        login = netrc(path).authenticators(urlsplit(settings.base_url).netloc)
    except (OSError, NetrcParseError):
        return False
    return login is not None and bool(login[2])


def _answers(url: str) -> bool:
    """Whether a server answers, even with an error; wandb itself would try for much longer."""
    try:
        with urlopen(url, timeout=_SECONDS_TO_ANSWER):
            return True
    except HTTPError as error:
        error.close()
        return True
    except HTTPException:
        return True
    except URLError as error:
        # wandb checks certificates itself, by its own settings.
        return isinstance(error.reason, ssl.SSLError)
    except OSError:
        return False
