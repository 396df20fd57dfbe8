"""Parameters that were frozen after the algorithm was made stay frozen in the resumed run."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pytorchrl as prl
from pytorchrl.experiments.runs.composition import load_agent
from pytorchrl.scheme.distributed.gradient_worker import load_shared_state, shared_state


class HalfFrozenDQN(prl.DQN):
    """DQN whose body does not learn."""

    def build(self) -> None:
        super().build()
        freeze(self.q.body)


def dqn(cls: type[prl.DQN] = prl.DQN) -> prl.Scheme:
    return prl.Scheme(
        cls.create_factory(start_steps=20, update_every=4, mini_batch_size=8, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8, 8)),
        prl.ReplayBuffer.create_factory(size=200),
        prl.VecEnv.create_factory("CartPole-v1"),
        seed=1,
    )


def hogwild() -> prl.Scheme:
    return prl.HogwildScheme(
        prl.A2C.create_factory(test_every=0, optimizer=prl.RMSprop(alpha=0.99, eps=1e-5, centered=False)),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,)),
        prl.GAEBuffer.create_factory(size=5),
        prl.VecEnv.create_factory("CartPole-v1"),
        processes=1,
        seed=1,
    )


def freeze(module: nn.Module, requires_grad: bool = False) -> None:
    for parameter in module.parameters():
        parameter.requires_grad_(requires_grad)


def frozen_of(learner: Any) -> dict[str, bool]:
    q = learner.scheme.algorithm.q
    return {name: not parameter.requires_grad for name, parameter in q.named_parameters()}


def values_of(parameters: Iterable[Tensor]) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in parameters]


def are_equal(some: Iterable[Tensor], others: Iterable[Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(some, others, strict=True))


def run_frozen(folder: Path, scheme: prl.Scheme | None = None) -> list[Tensor]:
    """Train with a frozen body; return its weights."""
    with prl.Learner(scheme or dqn(), 60, folder) as learner:
        freeze(learner.scheme.algorithm.q.body)  # type: ignore[attr-defined]
        learner.run(progress=False)
        return values_of(learner.scheme.algorithm.q.body.parameters())  # type: ignore[attr-defined]


def is_of_body(name: str) -> bool:
    return name.startswith("body.")


def test_parameters_frozen_after_the_build_stay_frozen_in_a_resumed_run(tmp_path: Path) -> None:
    before = run_frozen(tmp_path / "run")
    with prl.Learner.resume(tmp_path / "run", target_steps=120) as learner:
        q: Any = learner.scheme.algorithm.q  # type: ignore[attr-defined]
        others = values_of(parameter for parameter in q.parameters() if parameter.requires_grad)
        learner.run(progress=False)
        assert frozen_of(learner) == {name: is_of_body(name) for name, _ in q.named_parameters()}
        assert are_equal(before, q.body.parameters())
        assert not are_equal(others, (parameter for parameter in q.parameters() if parameter.requires_grad))


def test_a_given_scheme_that_froze_nothing_resumes_with_the_frozen_parameters(tmp_path: Path) -> None:
    run_frozen(tmp_path / "run")
    with prl.Learner.resume(tmp_path / "run", scheme=dqn()) as learner:
        assert all(is_of_body(name) == frozen for name, frozen in frozen_of(learner).items())


def test_what_a_given_scheme_froze_itself_replaces_what_was_frozen(tmp_path: Path) -> None:
    run_frozen(tmp_path / "run")
    scheme = dqn()
    first = next(iter(scheme.algorithm.q.parameters()))  # type: ignore[attr-defined]
    first.requires_grad_(False)
    with prl.Learner.resume(tmp_path / "run", scheme=scheme) as learner:
        assert sum(frozen_of(learner).values()) == 1
        assert not first.requires_grad


def test_parameters_that_the_build_froze_and_a_script_thawed_learn_on(tmp_path: Path) -> None:
    with prl.Learner(dqn(HalfFrozenDQN), 60, tmp_path / "run") as learner:
        freeze(learner.scheme.algorithm.q.body, requires_grad=True)  # type: ignore[attr-defined]
        learner.run(progress=False)
    with prl.Learner.resume(tmp_path / "run", scheme=dqn(HalfFrozenDQN)) as learner:
        assert not any(frozen_of(learner).values())


def test_a_checkpoint_without_the_entry_of_frozen_parameters_loads() -> None:
    with dqn(HalfFrozenDQN) as scheme, dqn(HalfFrozenDQN) as other:
        state = scheme.algorithm.state_dict()
        del state["training"]["freezing"]
        other.algorithm.load_state_dict(state)
        assert not any(p.requires_grad for p in other.algorithm.q.body.parameters())  # type: ignore[attr-defined]


def test_two_states_loaded_in_turn_each_say_what_is_frozen() -> None:
    with dqn() as frozen, dqn() as free, dqn() as loaded:
        freeze(frozen.algorithm.q.body)  # type: ignore[attr-defined]
        body: Any = loaded.algorithm.q.body  # type: ignore[attr-defined]
        for scheme, expected in ((frozen, False), (free, True), (frozen, False)):
            loaded.algorithm.load_state_dict(scheme.algorithm.state_dict())
            assert {parameter.requires_grad for parameter in body.parameters()} == {expected}


@pytest.mark.parametrize("entry", [{"q.nowhere": False}, {"q.body.missing": 1}, ["q"], 3], ids=str)
def test_a_damaged_entry_of_frozen_parameters_is_refused(entry: Any) -> None:
    with dqn() as scheme:
        state = scheme.algorithm.state_dict()
        state["training"]["freezing"] = entry
        with pytest.raises(ValueError, match="requires a gradient"):
            scheme.algorithm.load_state_dict(state)
        assert all(p.requires_grad for p in scheme.algorithm.q.parameters())  # type: ignore[attr-defined]


def test_an_agent_loaded_from_a_run_has_its_frozen_parameters(tmp_path: Path) -> None:
    run_frozen(tmp_path / "run")
    algorithm, envs = load_agent(tmp_path / "run")
    envs.close()
    assert not any(p.requires_grad for p in algorithm.q.body.parameters())  # type: ignore[attr-defined]


def test_gradient_workers_compute_no_gradients_of_frozen_parameters() -> None:
    with dqn() as scheme, dqn() as of_worker:
        freeze(scheme.algorithm.q.body)  # type: ignore[attr-defined]
        load_shared_state(of_worker.algorithm, shared_state(scheme.algorithm))
        q: Any = of_worker.algorithm.q  # type: ignore[attr-defined]
        assert {name for name, p in q.named_parameters() if not p.requires_grad} == {
            name for name, _ in q.named_parameters() if is_of_body(name)
        }
        freeze(scheme.algorithm.q.body, requires_grad=True)  # type: ignore[attr-defined]
        load_shared_state(of_worker.algorithm, shared_state(scheme.algorithm))
        assert all(parameter.requires_grad for parameter in q.parameters())


def test_hogwild_processes_leave_frozen_parameters_as_they_are(tmp_path: Path) -> None:
    with prl.Learner(hogwild(), 100, tmp_path / "run") as learner:
        body: Any = learner.scheme.algorithm.pi.body  # type: ignore[attr-defined]
        freeze(body)
        before, all_before = values_of(body.parameters()), values_of(learner.scheme.actor.parameters())
        learner.run(progress=False)
        assert are_equal(before, body.parameters())
        assert not are_equal(all_before, learner.scheme.actor.parameters())
