"""The mode of wandb: that of the user's settings, unless it needs a login prompt or a long wait."""

import logging
import os
import ssl
from http.client import HTTPException
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, cast
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

if TYPE_CHECKING:
    import wandb

Mode: TypeAlias = Literal["online", "offline", "disabled", "shared"]

_SECONDS_TO_ANSWER = 3.0

_logger = logging.getLogger(__name__)


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
