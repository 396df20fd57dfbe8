"""See :mod:`tests.pytorchrl.crafted`."""

import contextlib
import io
import json
import sys
import time
import warnings
from pathlib import Path

from tests.pytorchrl.crafted import CASES
from tests.pytorchrl.crafted.case import OPENED


def _bytes(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) << 10


def _opened(how: str, path: Path) -> tuple[str, str]:
    try:
        OPENED[how](path)
    except Exception as error:
        return type(error).__name__, str(error)
    return "", "it was opened"


def main(paths: dict[str, str]) -> None:
    """Open inputs by the names of their cases."""
    warnings.simplefilter("ignore")
    results = {}
    for name, path in paths.items():
        # Resets the peak of the memory.
        Path("/proc/self/clear_refs").write_text("5")
        before, started = _bytes("VmRSS"), time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            error, message = _opened(CASES[name].how, Path(path))
        seconds = time.perf_counter() - started
        results[name] = {"error": error, "told": message, "bytes": _bytes("VmHWM") - before, "seconds": seconds}
    sys.stdout.write(json.dumps(results))


main(json.loads(Path(sys.argv[1]).read_text()))
