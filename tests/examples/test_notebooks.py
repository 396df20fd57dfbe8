"""The notebooks: their code runs from the first cell to the last, and their outputs are those of a run."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def cells_of(notebook: Path, kind: str) -> list[Any]:
    return [cell for cell in json.loads(notebook.read_text("utf-8"))["cells"] if cell["cell_type"] == kind]


@pytest.mark.long
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_without_an_error(notebook: Path, tmp_path: Path) -> None:
    code = "\n".join("".join(cell["source"]) for cell in cells_of(notebook, "code"))
    script = f"import matplotlib\nmatplotlib.use('Agg')\n{code}"
    subprocess.run([sys.executable, "-W", "error", "-c", script], cwd=tmp_path, check=True, timeout=600)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_the_outputs_of_one_run_in_order(notebook: Path) -> None:
    cells = cells_of(notebook, "code")
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert not [output for cell in cells for output in cell["outputs"] if output["output_type"] == "error"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_of_a_notebook_lead_to_files(notebook: Path) -> None:
    text = "".join("".join(cell["source"]) for cell in cells_of(notebook, "markdown"))
    links = re.findall(r"\]\(([^)#]+)\)", text)
    assert links
    assert all((notebook.parent / link).is_file() for link in links)
