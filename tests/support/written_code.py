"""What code in texts for users refers to, so that a renamed part of the package makes a test fail."""

import ast
import functools
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytorchrl as prl
from pytorchrl.agent.actors import heads, outputs
from storages.component.declared import hyper_parameters_of
from storages.component.setting import Setting

ROOT = Path(__file__).parents[2]
SPAN = re.compile(r"`([^`]*)`(?:(?:, `[^`]*`)* of (?:the )?(?:`prl\.([\w.]+)`|(actor|algorithm|storage|learner)\b))?")
FILE = re.compile(r"[\w*]+\.(?:jsonl|json|pt|patch)$")
METRIC = re.compile(r"[a-z]+/[a-z_]+$")
MODULE = re.compile(r"(?:storages|pytorchrl)[\w.]*$")
COMMAND = re.compile(r"python -m pytorchrl (\w+)")
INSTANCES: dict[str, Any] = {
    "storage": prl.PERBuffer,
    "scheme": prl.Scheme,
    "learner": prl.Learner,
    "agent": prl.Agent,
    "algorithm": prl.SAC,
    "actor": prl.OffPolicyActor,
    "policy": prl.TrainedPolicy,
    "exploration": prl.Exploration,
}
"""Names of variables in such code, and their classes."""
BASES = {"actor": (prl.Actor,), "algorithm": (prl.Algorithm,), "storage": (prl.Storage,), "learner": (prl.Learner,)}
FREE = {"len", "next", "size", "num_envs", "batch_size", "max", "truncated", "terminated", "reset", "experiment"}


def unknown(text: str) -> list[str]:
    """The code between backticks that refers to nothing in the package."""
    return [found[0] for found in SPAN.finditer(text) if not _is_known(found[1], found[2], found[3])]


def _is_known(code: str, owner: str | None, role: str | None) -> bool:
    if FILE.match(code):
        return code in _sources("pytorchrl/experiments/runs")
    if METRIC.match(code):
        # Algorithms name their losses and metrics without "losses/".
        known = f"{_sources('docs/logging.md')}{_sources('pytorchrl')}"
        return code in known or f'"{code.removeprefix("losses/")}"' in known
    if command := COMMAND.match(code):
        return (ROOT / "pytorchrl" / "commands").joinpath(f"{command[1]}.py").exists() or command[1] in _commands()
    if MODULE.match(code):
        return _imported(code) is not None
    tree = ast.parse(f"called({code})" if re.match(r"\w+=", code) else code, mode="eval")
    if owner is not None:
        named = [node.arg for node in ast.walk(tree) if isinstance(node, ast.keyword)][:1] or [code.partition("(")[0]]
        return named[0] in members(_public(owner)) or not re.match(r"\w+$", str(named[0]))
    if role is not None and (name := re.match(r"(\w+)(?:$|=)", code)):
        return any(name[1] in members(cls) for cls in _classes(BASES[role]))
    return all(_exists(node) for node in ast.walk(tree))


def _imported(path: str) -> Any:
    """A module, or an attribute of one."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name, None) if module else None


def _exists(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        chain = _chain(node)
        return chain is None or _resolved(chain) is not None
    if isinstance(node, ast.Call):
        called = _chain(node.func)
        keywords = {keyword.arg for keyword in node.keywords if keyword.arg is not None}
        if called is None or called == ["called"]:
            return keywords <= all_members()
        target = _resolved(called)
        return target is not None and keywords <= _parameters(target)
    if isinstance(node, ast.Expression) and isinstance(node.body, ast.Name):
        return node.body.id in all_members() or node.body.id in FREE
    return True


def _chain(node: ast.AST) -> list[str] | None:
    """The names of ``a.b.c``, or None where it begins with something else."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return [node.id, *names] if isinstance(node, ast.Name) else None


def _resolved(chain: list[str]) -> Any:
    first, *rest = chain
    if first == "prl":
        found: Any = prl
    elif first in INSTANCES:
        found = INSTANCES[first]
    elif first in all_members() or first in FREE:
        return first if not rest else None
    else:
        return None
    for name in rest:
        if inspect.isclass(found) and name in members(found):
            found = getattr(found, name, name)
        elif isinstance(found, str) or not hasattr(found, name):
            return None
        else:
            found = getattr(found, name)
    return found


def _parameters(target: Any) -> set[str]:
    if isinstance(target, str):
        return all_members()
    signature = inspect.signature(target)
    names = set(signature.parameters)
    return names | all_members() if any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()) else names


def _public(name: str) -> Any:
    return functools.reduce(getattr, name.split("."), prl)


@functools.cache
def members(cls: Any) -> frozenset[str]:
    """Attributes, methods, hyper-parameters and arguments of a class or function, and attributes set by methods."""
    if not inspect.isclass(cls):
        return frozenset(inspect.signature(cls).parameters)
    names = set(dir(cls)) | set(inspect.signature(cls.__init__).parameters)
    if hasattr(cls, "create_factory"):
        names |= set(hyper_parameters_of(cls))
    for base in cls.__mro__[:-1]:
        names |= set(vars(base).get("__annotations__", ()))
        if base.__module__.startswith(("pytorchrl", "storages")):
            names |= _set_in(inspect.getfile(base))
    return frozenset(names)


@functools.cache
def _set_in(file: str) -> set[str]:
    """Attributes that the methods of a file set or use."""
    return set(re.findall(r"self\.(\w+)", Path(file).read_text(encoding="utf-8")))


def _classes(bases: tuple[type[Any], ...]) -> Iterator[Any]:
    for name in prl.__all__:
        each = getattr(prl, name)
        if inspect.isclass(each) and issubclass(each, bases):
            yield each


@functools.cache
def all_members() -> frozenset[str]:
    """Names of all public classes, and what they have."""
    everything = [getattr(prl, name) for name in prl.__all__]
    everything += [each for part in (heads, outputs) for each in vars(part).values()]
    classes = [
        each for each in everything if inspect.isclass(each) and each.__module__.startswith(("pytorchrl", "sto"))
    ]
    classes += [prl.planners.CrossEntropy, Setting]
    return frozenset().union(prl.__all__, *(members(cls) for cls in classes if not issubclass(cls, Exception)))


@functools.cache
def _sources(path: str) -> str:
    place = ROOT / path
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


@functools.cache
def _commands() -> str:
    return _sources("pytorchrl/commands")
