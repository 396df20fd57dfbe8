"""Hyper-parameters that a callback changed during a run are those of the resumed run."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import pytorchrl as prl
from storages.component.schedule import FunctionSchedule
from tests.support.comparison import assert_equal
from tests.support.data_sets import recorded

CARTPOLE = prl.VecEnv.create_factory("CartPole-v1", num_envs=2)
PRIORITIES: dict[str, Any] = {"n_step": 3, "alpha": 0.6, "beta": 0.4, "epsilon": 0.01}
CHANGED_AT, KILLED_AT, TARGET = 80, 132, 220
Changes = Mapping[tuple[str, str], Any]


class ChangesOnce(prl.Callback):
    """Changes hyper-parameters once, at a number of steps; a resumed run does not repeat it."""

    def __init__(self, changes: Changes, *, at: int = CHANGED_AT) -> None:
        self.changes, self.at, self.changed_at = changes, at, -1

    def on_step(self, learner: Any) -> None:
        scheme = learner.scheme
        if self.changed_at < 0 and scheme.steps >= self.at:
            self.changed_at = scheme.steps
            for (of, name), value in self.changes.items():
                part = {"algorithm": scheme.algorithm, "mix": scheme.sources["main"], "storage": scheme.storage}[of]
                (part.update_algorithm_parameter if of == "algorithm" else part.update_storage_parameter)(name, value)

    def state_dict(self) -> dict[str, Any]:
        return {"changed_at": self.changed_at}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.changed_at = state["changed_at"]


class CopiesFolder(prl.Callback):
    """Copies the run folder at a number of steps, as a process that is killed then would leave it."""

    def __init__(self, to: Path) -> None:
        self.to = to

    def on_step(self, learner: Any) -> None:
        if learner.scheme.steps >= KILLED_AT and not self.to.exists():
            shutil.copytree(learner.log_dir, self.to)


def dqn(storage: Any = prl.PERBuffer, folder: Path | None = None, **given: Any) -> prl.Scheme:
    settings: dict[str, Any] = {**PRIORITIES, **({} if folder is None else {"directory": folder / "replay"})}
    return prl.Scheme(
        prl.DQN.create_factory(start_steps=24, update_every=4, mini_batch_size=8, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        storage.create_factory(**settings, size=60 if storage is prl.PERBuffer else None),
        CARTPOLE,
        **given,
    )


def ppo() -> prl.Scheme:
    return prl.Scheme(
        prl.PPO.create_factory(num_epochs=2, num_mini_batch=2, test_every=0),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,)),
        prl.GAEBuffer.create_factory(size=10),
        CARTPOLE,
        normalize_rewards="returns",
    )


OF_DQN: Changes = {
    ("algorithm", "lr"): 1e-2,
    ("algorithm", "gamma"): 0.9,
    ("algorithm", "epsilon"): prl.LinearSchedule(0.8, 0.1),
    ("algorithm", "update_every"): 6,
    ("storage", "beta"): prl.LinearSchedule(0.5, 1.0),
    ("storage", "alpha"): 0.3,
    ("storage", "n_step"): 2,
}
OF_PPO: Changes = {
    ("algorithm", "lr"): prl.LinearSchedule(1e-2, 1e-3),
    ("algorithm", "gamma"): 0.9,
    ("algorithm", "clip_param"): 0.05,
    ("algorithm", "num_epochs"): 3,
    ("storage", "gae_lambda"): 0.5,
}
WITH_ALPHA_AS_SCHEDULE: Changes = {("storage", "alpha"): prl.LinearSchedule(0.9, 0.1), ("storage", "beta"): 1.0}
RUNS: dict[str, tuple[Callable[[Path], prl.Scheme], Changes]] = {
    "off-policy": (lambda folder: dqn(), OF_DQN),
    "off-policy, with a schedule of priorities": (lambda folder: dqn(), WITH_ALPHA_AS_SCHEDULE),
    "on-policy": (lambda folder: ppo(), OF_PPO),
    "on disk": (lambda folder: dqn(folder=folder), OF_DQN),
    "episodes on disk": (lambda folder: dqn(prl.PersistentEpisodicBuffer, folder), OF_DQN),
}


def result_of(learner: prl.Learner) -> Any:
    """Everything that the run would go on with; of a storage on disk, the next batch instead of its position."""
    scheme = learner.scheme
    state = scheme.state_dict()
    storage = state.pop("storage")
    batch = next(iter(scheme.storage.generate_batches(1, 8))) if len(scheme.storage) else None
    learner.close()
    return state, storage["generator"], storage["changed"], batch


def resumed_after_a_kill(make: Callable[[Path], prl.Scheme], changes: Changes, tmp_path: Path) -> tuple[Any, Any]:
    """The results of a run that was not stopped, and of the one that was killed in it and resumed."""
    folder, killed = tmp_path / "whole", tmp_path / "killed"
    whole = prl.Learner(make(folder), TARGET, folder, callbacks=[ChangesOnce(changes), CopiesFolder(killed)])
    assert whole.run(checkpoint_every=30)
    resumed = prl.Learner.resume(
        killed, scheme=make(killed), callbacks=[ChangesOnce(changes), CopiesFolder(tmp_path / "unused")]
    )
    assert CHANGED_AT < resumed.scheme.steps < KILLED_AT
    assert resumed.run()
    return result_of(resumed), result_of(whole)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if "episodes" in name else name for name in RUNS]
)
def test_a_killed_run_goes_on_with_the_changed_hyper_parameters(name: str, tmp_path: Path) -> None:
    make, changes = RUNS[name]
    resumed, whole = resumed_after_a_kill(make, changes, tmp_path)
    assert_equal(resumed, whole)
    unchanged = prl.Learner(make(tmp_path / "unchanged"), TARGET, tmp_path / "unchanged")
    unchanged.run()
    weights = unchanged.scheme.algorithm.get_weights()
    assert any(not torch.equal(weights[key], whole[0]["algorithm"]["actor"][key]) for key in weights)
    unchanged.close()


def test_a_killed_run_goes_on_with_the_changed_shares_of_a_mix(tmp_path: Path) -> None:
    data = recorded(tmp_path / "episodes.npz")
    source = prl.from_dataset(prl.PERBuffer.create_factory(100, **PRIORITIES), data)

    def make(folder: Path) -> prl.Scheme:
        halves = prl.MixedSource({"data": 0.5, "main": 0.5})
        scheme = dqn(sources={"data": source}, mixed={"main": halves})
        scheme.storages["data"].update_storage_parameter("beta", 0.75)
        return scheme

    changes = {("mix", "shares"): {"data": 0.25, "main": 0.75}, ("storage", "alpha"): 0.3}
    resumed, whole = resumed_after_a_kill(make, changes, tmp_path)
    assert_equal(resumed, whole)
    assert whole[0]["mixed"] == {"main": {"shares": {"data": 0.25, "main": 0.75}}}
    assert whole[0]["sources"]["data"]["changed"] == {"beta": 0.75}


def saved(folder: Path, changes: Changes) -> Path:
    learner = prl.Learner(dqn(), 100, folder, callbacks=[ChangesOnce(changes)])
    learner.run()
    learner.close()
    return folder


def test_a_run_is_resumed_from_its_folder_alone_with_its_changed_hyper_parameters(tmp_path: Path) -> None:
    folder = saved(tmp_path / "run", OF_DQN)
    with prl.Learner.resume(folder, target_steps=140, callbacks=[]) as learner:
        scheme = learner.scheme
        assert (scheme.algorithm.gamma, scheme.algorithm.epsilon) == (0.9, prl.LinearSchedule(0.8, 0.1))
        assert (scheme.algorithm.plan.number, scheme.storage.alpha, scheme.storage.n_step) == (6, 0.3, 2)  # type: ignore[attr-defined]
        assert {group.stepper.learning_rate for group in scheme.algorithm.training.groups.values()} == {1e-2}
        learner.run()


def test_hyper_parameters_changed_in_a_scheme_given_to_resume_win(tmp_path: Path) -> None:
    folder, scheme = saved(tmp_path / "run", OF_DQN), dqn()
    scheme.algorithm.update_algorithm_parameter("gamma", 0.5)
    scheme.storage.update_storage_parameter("stratified", True)
    with prl.Learner.resume(folder, scheme=scheme, callbacks=[]):
        assert (scheme.algorithm.gamma, scheme.algorithm.changed_parameters["lr"]) == (0.5, 1e-2)
        assert (scheme.storage.stratified, scheme.storage.alpha) == (True, 0.3)  # type: ignore[attr-defined]


def changed_by_hand(run: Path) -> Any:
    return json.loads((run / "config.json").read_text()).get("changed_by_hand")


def test_the_configuration_records_what_was_changed_by_hand_and_when(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    with prl.Learner(dqn(seed=3), 40, folder) as learner:
        learner.run(progress=False)
    assert changed_by_hand(folder) is None
    for gamma in (0.5, 0.7):  # the first resumed learner makes no step
        scheme = dqn(seed=3)
        scheme.algorithm.update_algorithm_parameter("gamma", gamma)
        scheme.storage.update_storage_parameter("alpha", 0.3)
        with prl.Learner.resume(folder, scheme=scheme, target_steps=80) as learner:
            if gamma == 0.7:
                learner.run(progress=False)
    expected = [
        {"steps": 40, "part": "DQN", "hyper_parameters": {"gamma": 0.7}},
        {"steps": 40, "part": "PERBuffer", "hyper_parameters": {"alpha": 0.3}},
    ]
    assert changed_by_hand(folder) == expected
    scheme = dqn(seed=3)
    scheme.algorithm.lr = 1e-5
    with prl.Learner.resume(folder, scheme=scheme, target_steps=120) as learner:
        learner.run(progress=False)
    with prl.Learner.resume(folder, target_steps=160) as learner:
        learner.run(progress=False)
    expected.append({"steps": 80, "part": "DQN", "hyper_parameters": {"lr": 1e-5}})
    assert changed_by_hand(folder) == expected
    with prl.Learner.repeat(folder, tmp_path / "again"):
        assert "was changed by hand, to gamma=0.7 from step 40" in capsys.readouterr().out
    assert changed_by_hand(tmp_path / "again") is None


def test_what_was_changed_before_a_run_began_is_recorded_and_what_callbacks_change_is_not(tmp_path: Path) -> None:
    scheme = dqn(seed=3)
    scheme.algorithm.gamma = 0.5
    changes = [ChangesOnce({("algorithm", "lr"): 1e-4}, at=20)]
    with prl.Learner(scheme, 40, tmp_path / "run", callbacks=changes) as learner:
        learner.run(progress=False)
    assert changed_by_hand(tmp_path / "run") == [{"steps": 0, "part": "DQN", "hyper_parameters": {"gamma": 0.5}}]


def test_a_scheme_of_other_hyper_parameters_is_refused_even_if_changed_to_them(
    tmp_path: Path,
) -> None:
    folder = saved(tmp_path / "run", {("storage", "alpha"): 0.3})
    other = prl.Scheme(
        *dqn().factories[:2], prl.PERBuffer.create_factory(size=60, **(PRIORITIES | {"alpha": 0.3})), CARTPOLE
    )
    with pytest.raises(prl.CheckpointError, match=r"storage.alpha: 0.3 here, 0.6 in the checkpoint"):
        prl.Learner.resume(folder, scheme=other)


def test_a_run_that_begins_with_the_networks_of_another_has_its_own_hyper_parameters(tmp_path: Path) -> None:
    folder, scheme = saved(tmp_path / "run", OF_DQN), dqn()
    prl.start_from(scheme, folder)
    assert not any(part.changed_parameters for part in scheme.changeable)
    assert {group.stepper.learning_rate for group in scheme.algorithm.training.groups.values()} == {1e-3}
    assert scheme.algorithm.gamma == 0.99
    scheme.close()


@dataclass(eq=False)
class SetsAgain(prl.Callback):
    """Sets a hyper-parameter that a checkpoint cannot hold whenever the run begins."""

    def on_run_begin(self, learner: Any) -> None:
        learner.scheme.algorithm.update_algorithm_parameter("epsilon", FunctionSchedule(abs, 0.0, 1.0))


def test_a_function_that_a_checkpoint_cannot_hold_is_missed_with_a_warning(tmp_path: Path) -> None:
    with prl.Learner(dqn(), 100, tmp_path / "run", callbacks=[SetsAgain()]) as learner:
        learner.run()
    with (
        pytest.warns(
            UserWarning, match="DQN: epsilon was changed to FunctionSchedule.*set it again, such as in on_run"
        ),
        prl.Learner.resume(tmp_path / "run", scheme=dqn(), callbacks=[SetsAgain()]) as learner,
    ):
        assert learner.scheme.algorithm.changed_parameters == {}


@pytest.mark.parametrize(
    ("part", "changed", "message"),
    [
        ("algorithm", {"gamma": 3.0}, r"DQN: gamma must lie in \[0, 1\], got 3"),
        ("algorithm", {"optimizer": None}, "DQN: optimizer is fixed once the object is made"),
        ("algorithm", {"epsilon": {"name": "CopiesFolder", "hyper_parameters": {}}}, "DQN: epsilon must be a value"),
        ("storage", {"alpha": -1.0}, "PERBuffer: alpha must be at least 0|PERBuffer: alpha must lie in"),
        ("storage", {"directory": "elsewhere"}, "PERBuffer: directory is fixed once the object is made"),
        ("storage", {"error_min": 2.0, "error_max": 1.0}, "PERBuffer: error_min must be at most error_max=1"),
        ("storage", 7, "PERBuffer: the state has 7 as its changed hyper-parameters"),
    ],
)
def test_a_changed_hyper_parameter_that_is_none_is_refused_by_name(
    part: str, changed: Any, message: str, tmp_path: Path
) -> None:
    folder = saved(tmp_path / "run", {})
    state = torch.load(folder / "checkpoint.pt", weights_only=True)
    assert state["scheme"][part]["changed"] == {}
    state["scheme"][part]["changed"] = changed
    torch.save(state, folder / "checkpoint.pt")
    with pytest.raises(prl.CheckpointError, match=rf"checkpoint\.pt does not fit its own composition: ({message})"):
        prl.Learner.resume(folder, scheme=dqn(), callbacks=[])


@pytest.mark.parametrize("shares", [{"data": 2.0}, {"data": 0.5, "main": 0.25}, 3, {"other": 1.0}])
def test_changed_shares_that_are_none_are_refused(shares: Any, tmp_path: Path) -> None:
    data = recorded(tmp_path / "episodes.npz")
    source = prl.from_dataset(prl.PERBuffer.create_factory(100, **PRIORITIES), data)
    scheme = dqn(sources={"data": source}, mixed={"main": prl.MixedSource({"data": 0.5, "main": 0.5})})
    state = scheme.state_dict()
    assert state["mixed"] == {"main": {}}
    with pytest.raises(ValueError, match="MixedStorage: shares must"):
        scheme.load_state_dict(state | {"mixed": {"main": {"shares": shares}}})
    scheme.close()


def test_a_hyper_parameter_assigned_to_an_algorithm_is_checked_used_and_kept(tmp_path: Path) -> None:
    with prl.Learner(dqn(), 20, tmp_path / "run") as learner:
        algorithm: Any = learner.scheme.algorithm
        algorithm.lr = 7e-5
        assert {group.stepper.learning_rate for group in algorithm.training.groups.values()} == {7e-5}
        with pytest.raises(ValueError, match="DQN: gamma must lie in"):
            algorithm.gamma = 3.0
        with pytest.raises(ValueError, match="DQN: huber_threshold is fixed once the object is made"):
            algorithm.huber_threshold = 2.0
        learner.run(progress=False)
    with prl.Learner.resume(tmp_path / "run", target_steps=30) as learner:
        assert learner.scheme.algorithm.changed_parameters == {"lr": 7e-5}


class SetsItsOwn(prl.DQN):
    """Sets hyper-parameters in `build`, and one of its own ``__init__`` after that of the base class."""

    def __init__(self, device: Any, actor: Any, envs: Any, *, bonus: float = 0.5, **kwargs: Any) -> None:
        super().__init__(device, actor, envs, **kwargs)
        self.bonus = bonus

    def build(self) -> None:
        self.gamma = 0.5
        super().build()


def test_a_class_may_set_its_hyper_parameters_while_it_is_made() -> None:
    scheme = prl.Scheme(
        SetsItsOwn.create_factory(bonus=0.25),
        prl.OffPolicyActor.create_factory(hidden_sizes=(4,)),
        prl.ReplayBuffer.create_factory(size=50),
        CARTPOLE,
    )
    algorithm: Any = scheme.algorithm
    assert (algorithm.gamma, algorithm.bonus, algorithm.changed_parameters) == (0.5, 0.25, {})
    scheme.close()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("learning_rate", "DQN: there is no hyper-parameter 'learning_rate', .*; here it is lr"),
        ("huber_treshold", "so that setting it changes nothing; did you mean 'huber_threshold'"),
    ],
)
def test_an_attribute_that_is_nearly_a_hyper_parameter_is_set_with_a_warning(name: str, message: str) -> None:
    with dqn() as scheme:
        algorithm: Any = scheme.algorithm
        with pytest.warns(UserWarning, match=message) as warned:
            setattr(algorithm, name, 3.0)
        assert [one.filename for one in warned] == [__file__]
        assert (getattr(algorithm, name), algorithm.changed_parameters) == (3.0, {})


class KeepsItsOwn(prl.DQN):
    """Sets attributes of names of other libraries before it is made, and others after."""

    def __init__(self, device: Any, actor: Any, envs: Any) -> None:
        super().__init__(device, actor, envs)
        self.learning_rate = 0.1

    def set_later(self) -> None:
        self.learning_rate, self.returns_seen, self._tau = 0.2, 3, 0.5


def test_a_class_sets_attributes_of_its_own_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    scheme = prl.Scheme(
        KeepsItsOwn.create_factory(),
        prl.OffPolicyActor.create_factory(hidden_sizes=(4,)),
        prl.ReplayBuffer.create_factory(size=50),
        CARTPOLE,
    )
    algorithm: Any = scheme.algorithm
    algorithm.set_later()
    assert (algorithm.learning_rate, algorithm.returns_seen, list(recwarn)) == (0.2, 3, [])
    scheme.close()
