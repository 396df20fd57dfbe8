"""An algorithm reads like its paper: ordinary torch, in few lines, in few files."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl

AGENT = Path(prl.__file__).parent / "agent"
ALGORITHMS = AGENT / "algorithms"
MODULE = "pytorchrl.agent.algorithms."
CORE = {
    MODULE + name
    for name in (
        *("algorithm", "rows", "training", "results", "needs", "update_plan", "checks", "off_policy", "on_policy"),
    )
}
"""Modules that all algorithms share, which readers know already."""
SHORTCUTS = [
    r"type\([^()]*\) is\b",
    r"__module__",
    r"\boverrides\(",
    r"\bwith_graph\b",
    r"\bis_plain\b",
    r"\bplain_(network|layers)\b",
    r"\bgradient_(memory|views)\b",
    r"\bLosses\([^)]*gradients=",
    r"\.slopes\b",
    r"surrogate - surrogate\.detach\(\)",
    r"def (losses_to|losses_of|delayed_losses|critic_outputs|values_of_taken)\b",
    r"\b(action_value_regression|deterministic_gradient|policy_likelihood|value_regression)\b",
    r"autograd\.Function\b",
]
"""What chooses, computes or passes on gradients beside autograd."""
MOST_LINES = {
    **dict.fromkeys(("SAC", "TD3", "DDPG", "PPO", "A2C", "DQN", "IQN", "R2D2", "Rainbow", "CQL", "MPO"), 300),
    **dict.fromkeys(("GAIL", "MBPO"), 600),
}
"""Of the files that a reader of an algorithm opens, by its name."""
FILES = sorted(ALGORITHMS.rglob("*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(AGENT))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_algorithm_computes_or_chooses_gradients_beside_autograd(path: Path) -> None:
    text = path.read_text()
    assert [pattern for pattern in SHORTCUTS if re.search(pattern, text)] == []


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_of_an_algorithm_is_short(path: Path) -> None:
    most = 405 if path.name == "algorithm.py" and path.parent == ALGORITHMS else 250
    assert len(path.read_text().splitlines()) <= most


def test_no_folder_is_named_parts() -> None:
    assert [name_of(path) for path in ALGORITHMS.rglob("parts")] == []


def test_functions_of_autograd_and_kernels_are_in_ops_alone() -> None:
    functions = r"autograd\.(function\.)?Function\)"
    kernels = r"^(import|from) (numba|storages\.core\.kernels\.compilation)\b"
    # Environments compute observations, and learn nothing.
    others = [path for path in AGENT.rglob("*.py") if not {AGENT / "ops", AGENT / "envs"} & {*path.parents}]
    assert [
        name_of(path) for path in others if re.search(f"{functions}|{kernels}", path.read_text(), re.MULTILINE)
    ] == []


@pytest.mark.parametrize(("name", "most"), MOST_LINES.items())
def test_few_lines_in_few_files_tell_how_an_algorithm_learns(name: str, most: int) -> None:
    opened = files_to_open(getattr(prl, name))
    lines = {name_of(path): len(path.read_text().splitlines()) for path in opened}
    assert sum(lines.values()) <= most, lines
    assert most > 300 or len(lines) <= 3, lines


@pytest.mark.parametrize("name", MOST_LINES)
def test_few_classes_are_above_an_algorithm(name: str) -> None:
    cls: Any = getattr(prl, name)
    own = [base for base in cls.__mro__[1:] if base.__module__.partition(".")[0] in ("pytorchrl", "storages")]
    derives = any(base.__name__ in prl.__all__ and not base.__abstractmethods__ for base in own if is_algorithm(base))
    # The reward of GAIL is a class of its own, to be combined with any on-policy algorithm.
    most = 9 if issubclass(cls, prl.GAILReward) else 7 if derives else 6
    assert len(own) <= most, [base.__name__ for base in own]


def is_algorithm(cls: Any) -> bool:
    return issubclass(cls, prl.Algorithm)


def files_to_open(cls: type[prl.Algorithm]) -> set[Path]:
    """The file of an algorithm and all that it imports, directly or not, within the folder, without the core."""
    found: set[Path] = set()
    modules, seen = [cls.__module__], set(CORE)
    while modules:
        module = modules.pop()
        path = AGENT.parents[1] / f"{module.replace('.', '/')}.py"
        if module in seen or not module.startswith(MODULE) or not path.exists():
            continue
        seen.add(module)
        found.add(path)
        nodes = ast.walk(ast.parse(path.read_text()))
        modules += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return found
