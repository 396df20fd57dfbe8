"""Weights & Biases: offline unless the user's own settings say otherwise, and never in the way of a run."""

import logging
import os
import secrets
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

from storages.persistent.log.files import refuse_link, write_atomically

if TYPE_CHECKING:
    import wandb

_Mode: TypeAlias = Literal["online", "offline", "disabled", "shared"]

_BINS = 64
_SECONDS_TO_ANSWER = 3.0
_SECONDS_TO_START = 10.0
_SECONDS_TO_FINISH = 30.0

_logger = logging.getLogger(__name__)


class WandbWriter:
    """Logs a run to wandb, from the run folder.

    The mode is the user's (WANDB_MODE or wandb's settings files), else offline. It never asks for a login: online
    without credentials, or without an answer of the server, becomes offline with a warning. The run's id is kept in
    ``wandb_run_id.txt``, so that a resumed run continues the same wandb run; an offline one is there in parts, which
    ``wandb sync`` joins.

    Args:
        log_dir: the run folder, which must exist.
        config: what the run is made of.
        run_name: what wandb shows; None takes the folder's name.
    """

    def __init__(self, log_dir: Path, config: Mapping[str, object], run_name: str | None = None) -> None:
        import wandb  # slow to import, and seldom needed

        refuse_link(log_dir / "wandb")
        self._id_file = log_dir / "wandb_run_id.txt"
        refuse_link(self._id_file)
        self._arguments: dict[str, Any] = {
            "resume": "allow",
            "dir": str(log_dir),
            "name": run_name or log_dir.resolve().name,
            "config": dict(config),
        }
        if not self._id_file.exists():
            self._renew_id()
        mode = _mode(wandb.setup().settings)
        try:
            self._run = self._start(mode)
        except (wandb.errors.Error, TimeoutError) as error:
            if mode not in ("online", "shared"):
                raise
            _logger.warning("wandb: no online run could be started, logging offline: %s", " ".join(str(error).split()))
            # wandb's service holds on to the id of a run that it could not start.
            self._renew_id()
            self._run = self._start("offline")

    def write(self, steps: int, metrics: Mapping[str, float]) -> None:
        """Log the metrics against environment steps."""
        self._run.log({**metrics, "steps": steps})

    def write_histograms(self, steps: int, values: Mapping[str, NDArray[Any]]) -> None:
        """Log a histogram for each array."""
        import wandb

        histograms = {name: wandb.Histogram(np_histogram=np.histogram(array, _BINS)) for name, array in values.items()}
        self._run.log({**histograms, "steps": steps})

    def close(self) -> None:
        """Finish the wandb run."""
        _open_runs.pop(self._run.id, None)
        self._run.finish()

    def _start(self, mode: _Mode) -> "wandb.Run":
        import wandb

        run_id = self._id_file.read_text().strip()
        if run_id in _open_runs:
            # Resumed where the first writer of the folder was not closed; wandb refuses an id twice at a time.
            _open_runs.pop(run_id).finish()
        settings = wandb.Settings(
            silent=True,
            console="off",
            # A run of its own, whatever else this process logs.
            reinit="create_new",
            init_timeout=_SECONDS_TO_START,
            # What is not sent by then is in the run folder, for `wandb sync`.
            finish_timeout=_SECONDS_TO_FINISH,
        )
        run = wandb.init(id=run_id, mode=mode, settings=settings, **self._arguments)
        # Training and evaluation log at the same step, so wandb's own ever-growing step does not fit.
        run.define_metric("*", step_metric="steps")
        _open_runs[run.id] = run
        return run

    def _renew_id(self) -> None:
        write_atomically(self._id_file, f"{secrets.token_hex(4)}\n".encode())


_open_runs: dict[str, "wandb.Run"] = {}


def _mode(settings: "wandb.Settings") -> _Mode:
    """The mode that the user asked for and that can be had without asking or waiting."""
    if "mode" not in settings.model_fields_set:
        return "offline"
    # Older words for two of these.
    mode = cast("_Mode", {"run": "online", "dryrun": "offline"}.get(settings.mode, settings.mode))
    if mode not in ("online", "shared"):
        return mode
    if not _has_credentials(settings):
        _logger.warning("wandb: mode is %s, but no API key is configured; logging offline", mode)
        return "offline"
    if not _answers(settings.base_url):
        _logger.warning("wandb: mode is %s, but %s does not answer; logging offline", mode, settings.base_url)
        return "offline"
    return mode


def _has_credentials(settings: "wandb.Settings") -> bool:
    """Whether wandb will find what it logs in with; where it does not, it asks."""
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
    """Whether a server is there, whatever it says: wandb itself would try for much longer."""
    try:
        with urlopen(url, timeout=_SECONDS_TO_ANSWER):
            return True
    except HTTPError as error:
        error.close()
        return True
    except HTTPException:
        return True
    except URLError as error:
        # Certificates are wandb's to judge: it has settings for them.
        return isinstance(error.reason, ssl.SSLError)
    except OSError:
        return False
