"""Weights & Biases: offline unless the user's own settings say otherwise, and never in the way of a run."""

import os
import secrets
import sys
import warnings
from collections.abc import Mapping
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import urlparse

import wandb

Mode: TypeAlias = Literal["online", "offline", "disabled", "shared"]

_SECONDS_TO_REACH_SERVER = 10.0


class WandbWriter:
    """Logs a run to wandb, from the run folder.

    The mode is the user's (WANDB_MODE or wandb's settings files), else offline. It never asks for a login: online
    without an API key, or without an answer of the server, becomes offline with a warning. The run's id is kept in
    ``wandb_run_id.txt``, so that a resumed run continues the same wandb run.

    Args:
        log_dir: the run folder, which must exist.
        config: what the run is made of.
    """

    def __init__(self, log_dir: Path, config: Mapping[str, Any]) -> None:
        id_file = log_dir / "wandb_run_id.txt"
        if not id_file.exists():
            id_file.write_text(secrets.token_hex(4) + "\n")
        self._arguments: dict[str, Any] = {
            "id": id_file.read_text().strip(),
            "resume": "allow",
            "dir": str(log_dir),
            "name": log_dir.name,
            "config": dict(config),
        }
        mode = _mode()
        try:
            self._run = self._start(mode)
        except (wandb.errors.CommError, wandb.errors.UsageError) as error:
            if mode != "online":
                raise
            warnings.warn(f"wandb: no online run could be started ({error}); logging offline", stacklevel=2)
            self._run = self._start("offline")

    def write(self, steps: int, metrics: Mapping[str, float]) -> None:
        """Log the metrics against environment steps."""
        self._run.log({**metrics, "steps": steps})

    def close(self) -> None:
        """Finish the wandb run."""
        self._run.finish()

    def _start(self, mode: Mode) -> "wandb.Run":
        settings = wandb.Settings(silent=True, console="off", init_timeout=_SECONDS_TO_REACH_SERVER)
        run = wandb.init(mode=mode, settings=settings, **self._arguments)
        # Training and evaluation log at the same step, so wandb's own ever-growing step does not fit.
        run.define_metric("*", step_metric="steps")
        return run


def _mode() -> Mode:
    settings = wandb.setup().settings
    if "mode" not in settings.model_fields_set:
        return "offline"
    if settings.mode in ("online", "run") and not _has_api_key(settings):
        warnings.warn("wandb: WANDB_MODE is online but no API key is configured; logging offline", stacklevel=3)
        return "offline"
    # "dryrun" and "run" are older words for two of these.
    modes: dict[str, Mode] = {"online": "online", "run": "online", "disabled": "disabled", "shared": "shared"}
    return modes.get(settings.mode, "offline")


def _has_api_key(settings: "wandb.Settings") -> bool:
    if settings.api_key or os.environ.get("WANDB_API_KEY"):
        return True
    name = os.environ.get("NETRC") or ("~/_netrc" if sys.platform == "win32" else "~/.netrc")
    try:
        return netrc(Path(name).expanduser()).authenticators(urlparse(settings.base_url).hostname or "") is not None
    except (OSError, NetrcParseError):
        return False
