"""Scripts that the Makefile calls start from any folder, with the packages of this checkout."""

import re
from pathlib import Path

import pytest

from tests.support import warm_interpreter

ROOT = Path(__file__).parents[2]
NEEDS = {
    "benchmarks/throughput/throughput.py": "sb3_contrib",
    "benchmarks/throughput/beside_sbx.py": "sbx",
}
WITHOUT_OPTIONS = {"benchmarks/storages/gpu.py"}
SCRIPTS = sorted(set(re.findall(r"benchmarks/\S+\.py", (ROOT / "Makefile").read_text())) - WITHOUT_OPTIONS)


@pytest.mark.long
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_prints_its_usage(script: str, tmp_path: Path) -> None:
    if script in NEEDS:
        pytest.importorskip(NEEDS[script])
    finished = warm_interpreter.run([ROOT / script, "--help"], tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert "usage" in finished.stdout.lower()
