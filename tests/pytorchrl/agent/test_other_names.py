"""Names that other libraries use lead to the names here, in calls and in commands, and to nothing else."""

import re
from typing import Any

import pytest

import pytorchrl as prl
from pytorchrl.agent.algorithms import Algorithm
from pytorchrl.commands.composition.options import unknown_option
from pytorchrl.commands.composition.parts import actor_for, storage_for
from storages.component.declared import hyper_parameters_of
from storages.component.other_names import unknown_hyper_parameters
from tests.pytorchrl.agent.names_of_libraries import LIBRARIES, answers


def answer_of(cls: type[Any], name: str) -> str:
    """What the error about a name says, as the tables write it."""
    declared = hyper_parameters_of(cls)
    if name in declared:
        return "same"
    message = unknown_hyper_parameters(cls, [name], declared)
    found = re.search(
        r"here it is (no setting|\w+)(?:[^;.]*? of (?:the )?(actor|algorithm|storage|[A-Z]\w+))?", message
    )
    if found is None:
        return re.sub(r".*?; ", "", message)[:60]
    if found[1] == "no setting":
        return "-"
    return f"{found[1]} of {found[2]}" if found[2] and found[1] not in declared else found[1]


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_name_of_another_library_has_the_right_answer(library: str) -> None:
    wrong = {}
    for cls, name, answer in answers(library):
        found = answer_of(getattr(prl, cls), name)
        if found != answer:
            wrong[f"{cls}({name})"] = f"{found}, not {answer}"
    assert wrong == {}


@pytest.mark.parametrize(
    ("cls", "name", "answer"),
    [
        (prl.ReBRAC, "actor_bc_coef", "policy_penalty"),
        (prl.ReBRAC, "critic_bc_coef", "critic_penalty"),
        (prl.ReBRAC, "alpha_actor", "policy_penalty"),
        (prl.ReBRAC, "alpha_critic", "critic_penalty"),
        (prl.ReBRAC, "normalize_q", "normalize_q_loss"),
        (prl.FQL, "q_agg", "value_of_targets"),
        (prl.FQL, "flow_steps", "same"),
    ],
)
def test_names_in_the_code_of_an_algorithms_authors_have_the_right_answer(cls: Any, name: str, answer: str) -> None:
    assert answer_of(cls, name) == answer


def test_the_tables_hold_the_names_of_each_library() -> None:
    assert {library: len(list(answers(library))) for library in LIBRARIES}["PFRL, ChainerRL and nnabla-rl"] >= 230
    assert all(len(list(answers(library))) >= 25 for library in LIBRARIES)


def option_answers() -> list[tuple[str, str, str]]:
    return [one for library in LIBRARIES for one in answers(library) if issubclass(getattr(prl, one[0]), Algorithm)]


def test_commands_answer_as_calls_do() -> None:
    wrong = {}
    for cls, name, answer in option_answers():
        algorithm = getattr(prl, cls)
        if name in hyper_parameters_of(algorithm):
            continue
        storage = storage_for(algorithm)
        parts = {"algorithm": algorithm, "actor": actor_for(storage), "storage": storage, "env": prl.VecEnv}
        known = [f"--{part}.{one.replace('_', '-')}" for part, of in parts.items() for one in hyper_parameters_of(of)]
        message = unknown_option(f"--algorithm.{name.replace('_', '-')}", known, parts)
        here, _, owner = answer.partition(" of ")
        if owner in parts and here in hyper_parameters_of(parts[owner]):
            expected = f"here it is --{owner}.{here.replace('_', '-')}"
        elif answer in hyper_parameters_of(algorithm):
            expected = f"here it is --algorithm.{answer.replace('_', '-')}"
        else:
            expected = {"-": "here there is no setting", "seed of Scheme": "here it is --seeds"}.get(
                answer, "here it is "
            )
        if expected not in message:
            wrong[f"{cls}({name})"] = f"{message}, not {expected}"
    assert wrong == {}


PARTS = {"algorithm": prl.PPO, "actor": prl.OnPolicyActor, "storage": prl.GAEBuffer, "env": prl.VecEnv}


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--algorithm.n-steps", "here it is --storage.size: size of the storage"),
        ("--algorithm.gama", "did you mean --algorithm.gamma?"),
        ("--lr", "did you mean --algorithm.lr?"),
        ("--learning-rate", "here it is --algorithm.lr"),
        ("--total-timesteps", "here it is --steps"),
        ("--n-envs", "here it is --num-envs"),
        ("--storage.buffer-size", "here it is --storage.size"),
        ("--hidden-sizes", "did you mean --actor.hidden-sizes?"),
        ("--actor.net-arch", "here it is --actor.hidden-sizes"),
        ("--stepps", "did you mean --steps?"),
        ("--algorithm.num-processes", "here it is --num-envs"),
        ("--unheard-of", "there is no option --unheard-of"),
    ],
)
def test_an_unknown_option_leads_to_the_one_of_that_meaning(option: str, said: str) -> None:
    known = [f"--{part}.{one.replace('_', '-')}" for part, cls in PARTS.items() for one in hyper_parameters_of(cls)]
    message = unknown_option(option, [*known, "--steps", "--seeds", "--num-envs", "--env", "--log-dir"], PARTS)
    assert said in message
    assert ("did you mean" in message) == ("did you mean" in said)
