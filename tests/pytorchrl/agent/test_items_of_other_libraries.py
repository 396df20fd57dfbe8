"""The table of what other libraries have is whole, true, and what `pytorchrl` answers their names from."""

import importlib
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl
from docs.migration_tables import TITLES
from pytorchrl.agent.other_names.items import answers, items
from tests.support.documented_names import DOCUMENTED
from tests.support.written_code import unknown

ROOT = Path(__file__).parents[3]
CODE = re.compile(r"`[^`]*`")


def test_each_row_says_what_is_there_here_and_what_differs() -> None:
    for item in items():
        assert item.kind in TITLES, item
        assert item.there, item
        assert item.here, item
        assert item.state in ("done", "differs", "absent"), item
        assert (item.differs == "") == (item.state == "done") or item.state == "absent", item
        assert "`" not in CODE.sub("", item.there + item.here + item.differs), item


@pytest.mark.parametrize("library", DOCUMENTED)
def test_every_documented_class_and_function_of_a_predecessor_is_here(library: str) -> None:
    rows = [item for item in items() if library in item.libraries.split(", ")]
    assert set(DOCUMENTED[library]) - {name for item in rows for name in item.names} == set()
    assert [item for item in rows if item.state == "absent"] == []


def test_the_table_has_every_item_that_was_asked_for() -> None:
    of_predecessors = [item for item in items() if set(item.libraries.split(", ")) & DOCUMENTED.keys()]
    assert len(of_predecessors) >= 550
    assert len({name for names in DOCUMENTED.values() for name in names}) >= 180


@pytest.mark.parametrize("kind", TITLES)
def test_code_in_answers_refers_to_what_exists(kind: str) -> None:
    rows = [item for item in items() if item.kind == kind]
    assert rows
    lost = {item.there: found for item in rows if (found := unknown(item.here) + unknown(item.differs))}
    assert lost == {}


@pytest.mark.parametrize(
    "text",
    [
        "`prl.PPO2`",
        "`prl.DQN.create_factory(dubble=False)`",
        "`clip_range` of `prl.PPO`",
        "`learning_starts`",
        "`capacity` of the actor",
        "`prl.heads.GaussianPolicy(spread=1.0)`",
        "`learner.train()`",
        "`memory_depth=2` of the actor",
        "`learning/unexplained_variance`",
        "`storages.renamed_transition`",
        "`best_model.pt`",
    ],
)
def test_a_renamed_part_would_be_found(text: str) -> None:
    assert unknown(text) == [text]


def test_what_predecessors_had_alone_names_tests_that_exist() -> None:
    with_tests = [item for item in items() if item.test]
    assert len(with_tests) == 31
    for item in with_tests:
        file, function = item.test.split("::")
        assert re.search(rf"^def {function}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), item


def test_a_name_of_another_library_is_answered_in_one_line() -> None:
    not_ours = answers().keys() - set(prl.__all__)
    assert len(not_ours) >= 500
    for name in not_ours:
        with pytest.raises(AttributeError) as missing:
            getattr(prl, name)
        text = str(missing.value)
        assert text.startswith(f"module 'pytorchrl' has no attribute '{name}': that of ")
        assert "\n" not in text
        assert "`" not in text
        assert not hasattr(prl, name)


def test_the_well_known_names_are_answered_by_what_to_write() -> None:
    known = {
        "VecNormalize": 'normalize_observations=True of the actor, and normalize_rewards="returns" of prl.Scheme',
        "EvalCallback": "test_envs_factory of prl.Scheme",
        "CheckpointCallback": "learner.run(checkpoint_every=10_000)",
        "make_vec_env": "prl.VecEnv.create_factory(env, num_envs=8)",
        "make_atari_env": "prl.atari_envs(env, num_envs=8)",
        "evaluate_policy": "learner.evaluate(episodes=10)",
        "SubprocVecEnv": 'mode="async"',
        "MlpPolicy": "prl.OnPolicyActor.create_factory()",
        "PrioritizedReplayBuffer": "prl.PERBuffer.create_factory(",
        "Monitor": "has no counterpart",
        "SoftActorCritic": "prl.SAC",
        "Collector": "prl.Scheme(",
        "PPOConfig": "prl.PPO.create_factory()",
        "FQF": "is not here; prl.IQN is the nearest",
    }
    for name, text in known.items():
        assert text in answers()[name], name


@pytest.mark.parametrize("name", ["VecNormalize", "SoftActorCritic"])
def test_an_import_of_such_a_name_says_what_to_write(name: str) -> None:
    with pytest.raises(ImportError) as missing:
        exec(f"from pytorchrl import {name}")
    assert str(missing.value) == f"cannot import name {name!r} from 'pytorchrl': {answers()[name]}"


def test_other_names_are_missing_as_in_any_module() -> None:
    with pytest.raises(AttributeError, match=r"^module 'pytorchrl' has no attribute 'Lerner'$") as missing:
        prl.Lerner  # noqa: B018
    assert (missing.value.name, missing.value.obj) == ("Lerner", prl)
    with pytest.raises(ImportError, match="cannot import name 'Lerner' from 'pytorchrl'"):
        exec("from pytorchrl import Lerner")
    assert not hasattr(prl, "__wrapped__")


def test_modules_of_the_package_are_imported_as_ever() -> None:
    modules = {module.name for module in pkgutil.iter_modules(prl.__path__)}
    assert not modules & answers().keys()
    for name in modules - {"__main__"}:
        namespace: dict[str, object] = {}
        exec(f"from pytorchrl import {name}", namespace)
        assert namespace[name] is importlib.import_module(f"pytorchrl.{name}")


@pytest.mark.parametrize(
    ("cls", "name", "unit"),
    [
        (prl.DQN, "replay_start_size", "in environment transitions"),
        (prl.DQN, "update_interval", "in environment transitions"),
        (prl.DQN, "target_update_frequency", "in updates"),
        (prl.NStepQLearning, "i_target", "in transitions"),
        (prl.ACER, "t_max", "in transitions of all environments"),
        (prl.TD3, "action_noise", "for actions scaled to [-1, 1]"),
        (prl.TD3, "policy_noise", "for actions scaled to [-1, 1]"),
        (prl.SAC, "action_noise", "dt=1.0), for actions in [-1, 1]"),
        (prl.PERBuffer, "capacity", "in steps; size * num_envs transitions"),
        (prl.SAC, "tau", "which is 1 - tau"),
        (prl.PPO, "eval_freq", "in environment transitions"),
    ],
)
def test_a_hint_says_which_unit_a_number_has(cls: Any, name: str, unit: str) -> None:
    with pytest.raises(TypeError, match=re.escape(unit)):
        cls.create_factory(**{name: 1})


def test_pages_on_migration_have_every_row() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs" / "migration").glob("*.md")))
    for item in items():
        assert item.here.replace("|", r"\|") in pages, item
        assert item.differs.replace("|", r"\|") in pages, item
