"""Scripts that the Makefile calls start from any folder, with the packages of this checkout."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDS = {"benchmarks/throughput/throughput.py": "sb3_contrib"}
WITHOUT_OPTIONS = {"benchmarks/storages/gpu.py"}
SCRIPTS = sorted(set(re.findall(r"benchmarks/\S+\.py", (ROOT / "Makefile").read_text())) - WITHOUT_OPTIONS)


@pytest.mark.long
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_prints_its_usage(script: str, tmp_path: Path) -> None:
    if script in NEEDS:
        pytest.importorskip(NEEDS[script])
    finished = subprocess.run(
        [sys.executable, ROOT / script, "--help"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    assert "usage" in finished.stdout.lower()
