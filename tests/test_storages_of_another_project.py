"""The top-level name `storages`, which other projects install too: django-storages does."""

import os
import subprocess
import sys
from pathlib import Path


def test_import_beside_the_storages_of_another_project_names_it_and_the_way_out(tmp_path: Path) -> None:
    other = tmp_path / "storages" / "__init__.py"
    other.parent.mkdir()
    other.write_text("__version__ = '1.14.6'\n")
    root = Path(__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(root)])}
    ended = subprocess.run(
        [sys.executable, "-c", "import pytorchrl"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert ended.returncode == 1
    *_, line = ended.stderr.splitlines()
    assert line == (
        f"ImportError: pytorchrl needs its own package `storages`, but `import storages` finds another project's in "
        f"{other} (django-storages installs one): install pytorchrl in a virtual environment of its own"
    )
