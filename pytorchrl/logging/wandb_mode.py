"""Whether wandb sends what is logged: as the user's settings say, where that needs no login and no waiting."""

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
    """The mode that the user asked for and that can be had without asking or waiting."""
    if "mode" not in settings.model_fields_set:
        # An agent of a sweep has logged in, and waits for what its runs send.
        return _reachable("online", settings) if settings.sweep_id else "offline"
    # Older words for two of these.
    mode = cast("Mode", {"run": "online", "dryrun": "offline"}.get(settings.mode, settings.mode))
    return _reachable(mode, settings) if mode in ("online", "shared") else mode


def _reachable(mode: Mode, settings: "wandb.Settings") -> Mode:
    """The mode, where wandb will find a login and a server; else "offline", with a warning."""
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
    """Whether a server answers, be it with an error: wandb itself would try for much longer."""
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
