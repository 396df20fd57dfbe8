"""What pages take from the classes: ``python docs/generated_parts.py`` writes it anew.

A page has markers, ``<!-- generated: hyper-parameters of DQN -->`` and ``<!-- end -->``, and what lies between them is
replaced. The kinds are

- "hyper-parameters" of components, "settings" of a frozen dataclass, "sections", one for each of several such;
- "composition" of an algorithm, its "curve" on the pages of learning curves, and "learners" from a storage;
- "index", which lists all algorithms, "presets", and "algorithms", which lists their pages and learning curves;
- "reference", the names of a page of the API;
- "migration" from libraries, in sections, and "names" of a library, in one table; underscores stand for hyphens.
"""

import functools
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

# The package beside this folder is documented, whichever is installed.
sys.path.insert(0, str(Path(__file__).parents[1]))

import pytorchrl as prl
from docs import algorithm_curves, algorithm_parameters, migration_tables, part_sections, reference_pages
from docs.algorithm_parameters import plain_text, shown
from pytorchrl.agent.actors.memory import MemoryKind
from pytorchrl.agent.algorithms.off_policy import Preset
from pytorchrl.agent.envs.spaces import HybridBox
from pytorchrl.scheme.compatibility import check_composition
from storages.component.declared import hyper_parameters_of

DOCS = Path(__file__).parent
PAGES = DOCS / "algorithms"
BLOCK = re.compile(
    r"^(<!-- generated: ([a-z-]+)(?: of ([\w., ]+))? -->\n).*?^(<!-- end -->)$", re.DOTALL | re.MULTILINE
)
FAMILIES = {
    "value_based": "value-based",
    "actor_critic": "actor-critic",
    "policy_gradient": "policy gradient",
    "model_based": "model-based",
    "offline": "offline",
    "imitation": "imitation",
}
"""The folders of algorithms, in the order of the index."""
SPACES = {
    "any": "Discrete, MultiDiscrete, MultiBinary, Box",
    "discrete": "Discrete",
    "box": "Box",
    "bounded": "Box with finite bounds",
    "hybrid": "choices with parameters, joined by `JoinActions`",
}
LEARNS_FROM = {"rollout": "rollouts", "replay": "replay", "any": "any storage"}
EXAMPLE = {
    "any": spaces.Discrete(3),
    "discrete": spaces.Discrete(3),
    "box": spaces.Box(-1, 1, (2,)),
    "bounded": spaces.Box(-1, 1, (2,)),
    "hybrid": HybridBox(np.full(4, -1), np.full(4, 1), np.float32, [(0, 3)]),
}

ACTORS = {"none": "without a memory", "possible": "with or without a memory", "required": "with a memory"}

Class = type[prl.Algorithm]
Memory = Literal["none", "possible", "required"]


def main() -> None:
    """Write all pages whose generated parts have changed."""
    for page in sorted(DOCS.glob("**/*.md")):
        old = page.read_text(encoding="utf-8")
        if (new := rewritten(old)) != old:
            page.write_text(new, encoding="utf-8")
            sys.stdout.write(f"{page}\n")


def rewritten(text: str) -> str:
    """A page with its generated parts made anew."""

    def block(found: re.Match[str]) -> str:
        made = _generated(found[2], found[3])
        return f"{found[1]}\n{made}\n\n{found[4]}" if made else f"{found[1]}{found[4]}"

    return BLOCK.sub(block, text)


def exported(kind: type[Any]) -> dict[str, Any]:
    """The classes of a kind that users can make, by name."""
    named = {name: getattr(prl, name) for name in prl.__all__}
    classes = {name: each for name, each in named.items() if inspect.isclass(each) and issubclass(each, kind)}
    return {name: each for name, each in classes.items() if not inspect.isabstract(each)}


def documented(page: Path) -> list[str]:
    """The names of the algorithms whose hyper-parameters a page lists."""
    found = BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [name for one in found if one[2] == "hyper-parameters" for name in one[3].split(", ")]


def _generated(kind: str, names: str | None) -> str:
    if kind == "index":
        return _table(["algorithm", "description", "family", "actions", "learns from", "memory"], _index())
    if kind == "algorithms":
        return _table(["algorithm", "family", "actions", "memory", "learns from", "curve"], _overview())
    if kind == "presets":
        return _table(["preset", "description"], _presets())
    if kind == "settings":
        return _settings(_named(names)) or "None."
    if kind == "reference":
        return reference_pages.reference(names or "")
    if kind in ("migration", "names"):
        return _migration((names or "").replace("_", "-").split(", "), in_sections=kind == "migration")
    if kind == "sections":
        return "\n\n".join(_section(name) for name in (names or "").split(", "))
    if kind == "learners":
        return _learners(names or "")
    classes = [_named(name) for name in (names or "").split(", ")]
    if kind == "hyper-parameters":
        return _table(["name", "default", "values", "meaning", "of"], algorithm_parameters.rows_of(classes))
    if kind == "curve":
        return algorithm_curves.curves_of({cls.__name__ for cls in classes})
    assert kind == "composition", f"{kind!r} is not generated"
    texts = {_table(["", ""], _composition(cls)) for cls in classes}
    assert len(texts) == 1, f"{names} compose with different parts; give each a marker"
    return texts.pop()


def _named(name: str | None) -> Any:
    """A public class: of ``prl`` itself, or ``heads.Policy`` of one of its modules."""
    return functools.reduce(getattr, (name or "").split("."), prl)


def _settings(cls: type[Any]) -> str:
    rows = list(part_sections.settings_of(cls))
    return _table(["name", "default", "values", "meaning"], rows) if rows else ""


def _section(name: str) -> str:
    cls = _named(name)
    parts = [f"## {cls.__name__}", part_sections.purpose_of(cls), _settings(cls)]
    return "\n\n".join(part for part in parts if part)


def _migration(libraries: Sequence[str], in_sections: bool) -> str:
    if not in_sections:
        return _table(migration_tables.HEAD, migration_tables.rows_of(libraries))
    sections = migration_tables.sections_of(libraries)
    return "\n\n".join(f"## {title}\n\n{_table(migration_tables.HEAD, rows)}" for title, rows in sections)


def _learners(storage: str) -> str:
    """Links to the algorithms that learn from a storage."""
    names = [name for name, cls in _by_family() if any(storage in _storages(cls, source) for source in cls.sources)]
    return ", ".join(_link(name, "../algorithms/") for name in names) or "Only algorithms of your own."


# The index


def _index() -> Iterator[Sequence[str]]:
    for name, cls in _by_family():
        link = _link(name)
        yield link, _purpose(cls), FAMILIES[_folder(cls)], SPACES[cls.actions], _learns_from(cls), _memory(cls)


def _purpose(cls: Class) -> str:
    """Return the line of an algorithm in the docstring of its module; else the first, which is that of the only one."""
    first = (inspect.getmodule(cls).__doc__ or "").partition("\n")[0]
    return reference_pages.own_line(cls) or first.split(": ", 1)[-1].rstrip(".")


def _overview() -> Iterator[Sequence[str]]:
    """A row for each page; algorithms of one page differ in few words, which stand behind each other."""
    of_pages: dict[Path, dict[str, Class]] = {}
    for name, cls in _by_family():
        of_pages.setdefault(_page_of()[name], {})[name] = cls
    for page, classes in of_pages.items():
        curves = (f"[{of.removesuffix('.md')}](../{of})" for of in algorithm_curves.pages_of(set(classes)))
        columns = zip(*(_row(cls) for cls in classes.values()), strict=True)
        told = (", ".join(dict.fromkeys(word for text in column for word in text.split(", "))) for column in columns)
        yield f"[{', '.join(classes)}]({page.name})", *told, ", ".join(curves)


def _row(cls: Class) -> tuple[str, str, str, str]:
    return FAMILIES[_folder(cls)], SPACES[cls.actions], _memory(cls), _learns_from(cls)


def _learns_from(cls: Class) -> str:
    """What its sources hold, each kind once."""
    return " and ".join(dict.fromkeys(LEARNS_FROM[needs.kind] for needs in cls.sources.values()))


def _by_family() -> list[tuple[str, Class]]:
    by_name = sorted(exported(prl.Algorithm).items(), key=lambda named: named[0].lower())
    return sorted(by_name, key=lambda named: list(FAMILIES).index(_folder(named[1])))


def _link(name: str, folder: str = "") -> str:
    """To the page of an algorithm. One whose page is not written yet has no link; a test asks for its page."""
    page = _page_of().get(name)
    return name if page is None else f"[{name}]({folder}{page.name})"


@functools.cache
def _page_of() -> dict[str, Path]:
    return {name: page for page in sorted(PAGES.glob("*.md")) for name in documented(page)}


def _folder(cls: Class) -> str:
    return cls.__module__.split(".")[-2]


def _presets() -> Iterator[Sequence[str]]:
    for cls in exported(prl.Algorithm).values():
        for name, preset in _presets_of(cls).items():
            purpose = (preset.__doc__ or "").splitlines()[0].partition(";")[0].rstrip(".")
            yield f"`prl.{cls.__name__}.{name}()`", plain_text(purpose)


# What a class composes with


def _composition(cls: Class) -> Iterator[Sequence[str]]:
    yield "actions", SPACES[cls.actions]
    for name, needs in cls.sources.items():
        role = "`storage_factory`" if name == "main" else f"`sources={{{name!r}: ...}}`".replace("'", '"')
        needed = "" if needs.values else ", with `cut_episodes='drop'`"
        yield role, f"{LEARNS_FROM[needs.kind]}: {', '.join(f'`{each}`' for each in _storages(cls, name))}{needed}"
    body = _smallest_body(cls, None) or _smallest_body(cls, "gru") or {}
    needed = "".join(f", with `{name}={value!r}`" for name, value in body.items() if name != "memory")
    yield "`actor_factory`", f"`OffPolicyActor` or `OnPolicyActor`, {ACTORS[_memory(cls)]}{needed}"
    algorithm = _made(cls, body)
    yield "networks", _listed(algorithm.actor.networks)
    yield "parameter groups", _listed(algorithm.training.groups)
    yield "exploration", f"`{shown(algorithm.make_explorer())}`"
    if cls.sources["main"].collected:
        yield "updates", f"`{shown(algorithm.plan)}`"
    if presets := [f"`{cls.__name__}.{name}()`" for name in _presets_of(cls)]:
        yield "presets", ", ".join(presets)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def _presets_of(cls: Class) -> dict[str, Any]:
    """The methods of a class, not those of its bases, that make presets."""
    methods = {name: each.__func__ for name, each in vars(cls).items() if isinstance(each, classmethod)}
    return {name: method for name, method in methods.items() if method.__annotations__.get("return") is Preset}


def _made(cls: Class, body: Mapping[str, Any]) -> Any:
    envs = SimpleNamespace(observation_space=spaces.Box(-1, 1, (3,), np.float32), action_space=EXAMPLE[cls.actions])
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=(4,), memory_size=4, **body)
    return _factory(cls)("cpu", actor("cpu", envs), envs)


def _memory(cls: Class) -> Memory:
    """Whether a class may, or must, have an actor with a memory."""
    without, with_one = (_smallest_body(cls, memory) is not None for memory in (None, "gru"))
    assert without or with_one, f"{cls.__name__} composes with no storage"
    return "none" if not with_one else "possible" if without else "required"


@functools.cache
def _smallest_body(cls: Class, memory: MemoryKind | None) -> dict[str, Any] | None:
    """What an actor with or without a memory must be given beside it; None where the class refuses all."""
    if not _storages(cls, "main", memory):
        return None
    for others in ({}, {"noisy": True}):
        body = {"memory": memory, **others} if memory else others
        try:
            _made(cls, body)
        except ValueError:
            continue
        return body
    return None


@functools.cache
def _storages(cls: Class, source: str, memory: MemoryKind | None = None) -> list[str]:
    """The storages that a source may be."""
    return [name for name, storage in exported(prl.Storage).items() if _fits(cls, source, storage, memory)]


def _fits(cls: Class, source: str, storage: Any, memory: MemoryKind | None) -> bool:
    usual = {"rollout": prl.GAEBuffer, "replay": prl.ReplayBuffer, "any": prl.ReplayBuffer}
    classes = {name: storage if name == source else usual[needs.kind] for name, needs in cls.sources.items()}
    sources: dict[str, Any] = {
        name: _storage_factory(
            each,
            in_sequences=memory is not None or cls.sources[name].segments or cls.sources[name].multi_step_rows,
            in_episodes=cls.sources[name].whole_episodes,
            is_dropped=not cls.sources[name].values,
        )
        for name, each in classes.items()
    }
    actor = prl.OffPolicyActor.create_factory(memory=memory)
    try:
        check_composition(_factory(cls), actor, sources, collects=cls.sources["main"].collected)
    except ValueError:
        return False
    return True


@functools.cache
def _factory(cls: Class) -> Any:
    # DAgger alone is nothing without one.
    given = {"expert": abs} if "expert" in hyper_parameters_of(cls) else {}
    return cls.create_factory(**given)


@functools.cache
def _storage_factory(cls: Any, in_sequences: bool, in_episodes: bool, is_dropped: bool) -> Any:
    has = hyper_parameters_of(cls)
    window = prl.Episodes() if in_episodes else prl.Sequences(4)
    sequences = {"sequences": window} if (in_sequences or in_episodes) and "sequences" in has else {}
    cut_episodes = {"cut_episodes": "drop"} if is_dropped and "cut_episodes" in has else {}
    # Only what has to be kept on disk is.
    on_disk = {"directory": "episodes"} if cls is prl.PersistentEpisodicBuffer else {}
    return cls.create_factory(size=8, **on_disk, **sequences, **cut_episodes)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([cell.replace("|", r"\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    main()
