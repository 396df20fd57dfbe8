"""Cached code is loaded if it matches the current sources and types; otherwise kernels are compiled again."""

import importlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

import storages
from storages.core.kernels import compilation

SUMS = """
from toy_kernels.compilation import kernel
from toy_kernels.constants import TERMS

@kernel
def total(number):
    found = number
    for _ in range(TERMS - 1):
        found += number
    return found
"""

ELSEWHERE = """
from toy_kernels.compilation import kernel

@kernel
def times(number):
    return FACTOR * number
"""

INSERT = """
import numpy as np
from types import SimpleNamespace
from storages import ReplayBuffer
from storages.core.kernels.insert import insert_steps
from storages.transition import ACT, DONE, DONE2, OBS, OBS2, REW, TRUNC2

storage = ReplayBuffer.create_factory(size=8)("cpu", None, SimpleNamespace(gamma=0.9), None)
flag = np.zeros((2, 1), bool)
for t in range(6):
    observe = lambda t: np.array([[t, -t, 7], [t + 50, t, 8]], np.float32)
    storage.insert_transition({
        OBS: observe(t), DONE: flag | (t == 0), ACT: np.full((2, 1), 3 * t), REW: np.full((2, 1), t / 2, np.float32),
        OBS2: observe(t + 1), DONE2: flag, TRUNC2: flag,
    })
found = storage.get_all_buffer_data()
assert found[OBS][:, 1, 0].tolist() == [50, 51, 52, 53, 54, 55], found[OBS]
assert found[OBS2][:, 0, 1].tolist() == [-1, -2, -3, -4, -5, -6], found[OBS2]
assert found[ACT][:, 0, 0].tolist() == [0, 3, 6, 9, 12, 15], found[ACT]
assert found[REW][:, 1, 0].tolist() == [0, 0.5, 1, 1.5, 2, 2.5], found[REW]
print(sum(insert_steps.stats.cache_hits.values()), sum(insert_steps.stats.cache_misses.values()))
"""

COMPILE_SLOWLY = """
import os, sys, time
from pathlib import Path
from toy_kernels.sums import total

folder, own, other, number = Path(sys.argv[1]), sys.argv[2], sys.argv[3], eval(sys.argv[4])
replace = os.replace
pauses = iter([0.2, 0.6] if own == "a" else [0.4, 0.2])

def replace_when_both_have_begun(*args, **kwargs):
    (folder / own).touch()
    while not (folder / other).exists():
        time.sleep(0.005)
    time.sleep(next(pauses, 0))
    return replace(*args, **kwargs)

os.replace = replace_when_both_have_begun
assert total(number) == 6 * number
"""


class Toys:
    """A package with a kernel, a constant in another module, and a copy of the compilation module."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "toy_kernels"
        self.folder.mkdir()
        (self.folder / "__init__.py").touch()
        (self.folder / "sums.py").write_text(SUMS)
        shutil.copy(compilation.__file__, self.folder)
        self.set_terms(6)

    def set_terms(self, terms: int) -> None:
        (self.folder / "constants.py").write_text(f"TERMS = {terms}\n")

    def total(self) -> Any:
        """The kernel, imported again as in a new process."""
        for name in [name for name in sys.modules if name.startswith("toy_kernels")]:
            del sys.modules[name]
        return importlib.import_module("toy_kernels.sums").total

    def files(self) -> list[Path]:
        return sorted(self.folder.rglob("*.kernel*"))


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toys:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    return Toys(tmp_path)


def loaded(compiled: Any) -> int:
    return sum(compiled.stats.cache_hits.values())


def run(script: str, *arguments: str, path: Path) -> "subprocess.Popen[str]":
    environment = {"PYTHONPATH": str(path), "PYTHONDONTWRITEBYTECODE": "1", "PATH": ""}
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        env=environment,
        cwd=path,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def output_of(process: "subprocess.Popen[str]") -> str:
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return output


def test_cached_code_is_loaded_for_the_types_that_it_was_compiled_for(toys: Toys) -> None:
    assert (toys.total()(7), toys.total()(0.5)) == (42, 3.0)
    again = toys.total()
    assert (again(7), again(0.5)) == (42, 3.0)
    assert loaded(again) == 2


def test_a_kernel_is_recompiled_if_a_constant_of_another_module_changes(toys: Toys) -> None:
    assert toys.total()(7) == 42
    toys.set_terms(8)
    anew = toys.total()
    assert (anew(7), loaded(anew)) == (56, 0)


def test_a_kernel_of_another_folder_is_recompiled_if_its_own_file_changes(toys: Toys) -> None:
    file = toys.folder.parent / "toy_kernels_elsewhere.py"
    found = []
    for factor in (2, 2, 3):
        file.write_text(ELSEWHERE.replace("FACTOR", str(factor)))
        toys.total()
        compiled = importlib.import_module("toy_kernels_elsewhere").times
        found.append((compiled(7), loaded(compiled)))
    assert found == [(14, 0), (14, 1), (21, 0)]


def test_cached_code_of_changed_sources_is_removed(toys: Toys) -> None:
    toys.total()(7)
    toys.total()(0.5)
    before = toys.files()
    toys.set_terms(8)
    toys.total()(7)
    assert len(before) == 2
    assert len(toys.files()) == 1
    assert not set(before) & set(toys.files())


@pytest.mark.parametrize("damage", [lambda code: code[:100], lambda code: code[:-300] + bytes(300), lambda code: b""])
def test_damaged_cache_files_are_recompiled(toys: Toys, damage: Callable[[bytes], bytes]) -> None:
    toys.total()(7)
    (file,) = toys.files()
    file.write_bytes(damage(file.read_bytes()))
    anew, again = toys.total(), toys.total()
    assert (anew(7), loaded(anew)) == (42, 0)
    assert (again(7), loaded(again)) == (42, 1)


def test_compiled_code_that_cannot_be_saved_is_used(toys: Toys, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    assert toys.total()(7) == 42
    assert toys.files() == []


def test_code_of_a_folder_without_a_cache_is_saved_in_the_cache_of_the_user(
    toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (toys.folder / "__pycache__").write_text("a file, where numba would make a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert toys.total()(7) == 42
    assert len(list((tmp_path / "cache").rglob("*.kernel"))) == 1
    toys.set_terms(8)
    assert toys.total()(7) == 56


def test_the_cache_directory_of_the_numba_configuration_is_used(
    toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "named"))
    assert toys.total()(7) == 42
    assert len(list((tmp_path / "named").rglob("*.kernel"))) == 1


def test_kernels_are_compiled_without_any_writable_cache_directory(
    toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in (toys.folder / "__pycache__", tmp_path / "cache"):
        place.write_text("a file, where numba would make a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert toys.total()(7) == 42
    assert toys.files() == []


def test_an_unknown_cache_interface_of_numba_is_not_used_and_causes_a_warning(
    toys: Toys, monkeypatch: pytest.MonkeyPatch
) -> None:
    from numba.core.dispatcher import Dispatcher

    monkeypatch.setattr(Dispatcher, "enable_caching", lambda self: None)
    with pytest.warns(RuntimeWarning, match="compiled anew in each process"):
        total = toys.total()
    assert total(7) == 42


@pytest.mark.long
def test_concurrent_processes_cache_a_kernel_correctly_for_different_types(toys: Toys, tmp_path: Path) -> None:
    numbers = {"a": "7", "b": "0.5"}
    writers = [
        run(COMPILE_SLOWLY, str(tmp_path), own, other, numbers[own], path=tmp_path)
        for own, other in (("a", "b"), ("b", "a"))
    ]
    for writer in writers:
        output_of(writer)
    reader = toys.total()
    assert (reader(7), reader(0.5)) == (42, 3.0)
    assert loaded(reader) == 2


@pytest.mark.long
def test_kernels_with_a_changed_constant_are_recompiled_and_store_correct_rows(tmp_path: Path) -> None:
    package = Path(storages.__file__).parent
    shutil.copytree(package, tmp_path / "storages", ignore=shutil.ignore_patterns("__pycache__"))
    assert output_of(run(INSERT, path=tmp_path)).split() == ["0", "1"]
    assert output_of(run(INSERT, path=tmp_path)).split() == ["1", "0"]
    memory = tmp_path / "storages" / "core" / "kernels" / "memory.py"
    before = memory.read_text()
    memory.write_text(
        before.replace(
            "_LONGEST_SHORT_ROW_BYTES, _VECTOR_BYTES = 128, 32", "_LONGEST_SHORT_ROW_BYTES, _VECTOR_BYTES = 64, 32"
        )
    )
    assert memory.read_text() != before
    assert output_of(run(INSERT, path=tmp_path)).split() == ["0", "1"]


def test_only_the_compilation_module_uses_njit_and_it_knows_all_sources() -> None:
    folder = Path(compilation.__file__).parent
    others = [path.name for path in folder.glob("*.py") if "njit" in path.read_text()]
    assert others == ["compilation.py"]
    assert np.array_equal(sorted(compilation._SOURCES), sorted(folder.glob("*.py")))
