"""The provenance of a run: its code, its command and its environment, saved in its folder."""

import json
from importlib import metadata
from pathlib import Path

import pytest

import pytorchrl as prl
from pytorchrl.experiments.runs.provenance import Code, code_of_the_directory, experiment_id, provenance
from tests.support.compositions import dqn_scheme
from tests.support.repositories import git


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    git("init", "-q")
    (tmp_path / "script.py").write_text("one = 1\n")
    git("add", "script.py")
    git("commit", "-qm", "Begin")
    return tmp_path


def recorded_facts(folder: Path) -> dict[str, object]:
    content: dict[str, object] = json.loads((folder / "versions.json").read_text())
    return content


def test_runs_of_equal_code_and_arguments_are_one_experiment(repository: Path) -> None:
    def run(name: str, seed: int = 0) -> str:
        prl.Learner(dqn_scheme(seed), 100, repository / "runs" / name).close()
        return str(recorded_facts(repository / "runs" / name)["experiment"])

    first = run("first")
    assert run("second") == first
    assert run("other seed", seed=1) != first
    (repository / "script.py").write_text("one = 2\n")
    changed = run("other code")
    assert changed != first
    git("commit", "-qam", "Change")
    assert run("committed") not in (first, changed)


def test_uncommitted_changes_are_saved_with_the_run(repository: Path) -> None:
    prl.Learner(dqn_scheme(), 100, repository / "clean").close()
    assert not (repository / "clean" / "git_diff.patch").exists()
    (repository / "script.py").write_text("one = 2\n")
    prl.Learner(dqn_scheme(), 100, repository / "changed").close()
    patch = (repository / "changed" / "git_diff.patch").read_text()
    assert "-one = 1\n+one = 2\n" in patch
    git("checkout", "-q", "script.py")
    git("apply", str(repository / "changed" / "git_diff.patch"))
    assert (repository / "script.py").read_text() == "one = 2\n"


@pytest.mark.parametrize(
    "end", ["\n\n\n\n", "", "\r\n", " \n\t\n"], ids=["blank lines", "no line end", "crlf", "blanks"]
)
def test_the_saved_changes_of_any_file_can_be_applied(repository: Path, end: str) -> None:
    script = repository / "script.py"
    script.write_bytes(f"a = 1{end}b = 2{end}".encode())
    git("-c", "core.autocrlf=false", "commit", "-qam", "Write")
    changed = f"a = 1{end}b = 3{end}".encode()
    script.write_bytes(changed)
    prl.Learner(dqn_scheme(), 100, repository / "run").close()
    git("checkout", "-q", "script.py")
    assert script.read_bytes() != changed
    git("apply", str(repository / "run" / "git_diff.patch"))
    assert script.read_bytes() == changed


def test_versions_of_installed_packages_of_environments_are_recorded() -> None:
    packages = provenance({}, Code())["packages"]
    assert packages["ale-py"] == metadata.version("ale-py")
    assert "envpool" not in packages or packages["envpool"] is not None


def test_without_a_repository_there_is_no_commit_and_no_diff(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert code_of_the_directory() == Code()
    assert len(experiment_id({"seed": 1}, Code())) == 12


def test_untracked_files_are_not_in_the_diff_but_are_reported_as_changes(repository: Path) -> None:
    clean = code_of_the_directory()
    assert clean == Code(git("rev-parse", "HEAD").strip())
    (repository / "script.py").write_text("one = 2\n")
    changed = code_of_the_directory()
    assert changed.has_changes
    assert "+one = 2" in str(changed.diff)
    git("checkout", "-q", "script.py")
    (repository / "a file with spaces.py").write_text("two = 2\n")
    assert code_of_the_directory() == Code(clean.commit, has_changes=True)


def test_before_the_first_commit_there_is_no_diff(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    git("init", "-q")
    assert code_of_the_directory() == Code()
    (tmp_path / "script.py").write_text("one = 1\n")
    git("add", "script.py")
    assert code_of_the_directory() == Code(has_changes=True)


def test_relevant_environment_variables_are_recorded_and_secrets_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("TORCH_API_KEY", "hidden")
    monkeypatch.setenv("HOME_OF_NOTHING", "elsewhere")
    environment = provenance({}, Code())["environment"]
    assert environment["OMP_NUM_THREADS"] == "1"
    assert "TORCH_API_KEY" not in environment
    assert "HOME_OF_NOTHING" not in environment
