"""An agent that trains in the background learns what it is told, while the loop around it goes on."""

import subprocess
import sys
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

import pytorchrl as prl
from storages.transition import LOGP, OBS, REW
from tests.pytorchrl.test_driven_agent import SETTINGS, Loop, assert_stored, each_setting, made
from tests.support.comparison import assert_equal


def background(setting: str, log_dir: Path, **given: Any) -> prl.Agent:
    return made(setting, log_dir, train_in_background=True, **given)


@each_setting
def test_all_that_is_observed_is_stored_and_learnt_from(setting: str, tmp_path: Path) -> None:
    with made(setting, tmp_path / "waits") as waits:
        Loop(setting).run(waits, 60)
        updates = waits.learner.scheme.algorithm.updates
    with background(setting, tmp_path / "run") as agent:
        loop = Loop(setting)
        loop.run(agent, 60)
        agent.save()
        scheme = agent.learner.scheme
        assert (agent.steps, scheme.steps, agent.episodes) == (60, 60, 12)
        assert scheme.algorithm.updates == updates
        assert_stored(agent, loop)


class Blocked(prl.DQN):
    """Updates when it is allowed to, and notes how many steps wait."""

    allowed: Event
    begun: Event
    fails = False

    def update(self, batch: Any) -> Any:
        self.begun.set()
        assert self.allowed.wait(60)
        if self.fails:
            raise ArithmeticError("an update failed")
        return super().update(batch)


@pytest.fixture
def blocked(monkeypatch: pytest.MonkeyPatch) -> type[Blocked]:
    monkeypatch.setattr(Blocked, "allowed", Event(), raising=False)
    monkeypatch.setattr(Blocked, "begun", Event(), raising=False)
    algo = Blocked.create_factory(start_steps=20, mini_batch_size=8, test_every=0)
    monkeypatch.setitem(SETTINGS, "blocked", (algo, *SETTINGS["dqn"][1:]))
    return Blocked


def test_the_loop_goes_on_during_an_update_with_the_weights_before_it(blocked: type[Blocked], tmp_path: Path) -> None:
    with background("blocked", tmp_path / "run") as agent:
        loop = Loop("blocked")
        scheme = agent.learner.scheme
        weights = scheme.algorithm.get_weights()
        loop.run(agent, 30)
        assert blocked.begun.wait(60)
        stored = scheme.steps
        loop.run(agent, 20)
        assert (agent.steps, scheme.steps) == (50, stored)
        assert scheme.algorithm.updates == 0
        assert_equal(agent.policy.algorithm.get_weights(), weights)
        blocked.allowed.set()
        agent.save()
        assert scheme.steps == 50
        assert scheme.algorithm.updates > 0
        assert_equal(agent.policy.algorithm.get_weights(), scheme.algorithm.get_weights())


def test_no_more_steps_wait_than_are_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = []

    class Counted(prl.DQN):
        def update(self, batch: Any) -> Any:
            waiting.append(agent.steps - agent.learner.scheme.steps)
            return super().update(batch)

    algo = Counted.create_factory(start_steps=20, mini_batch_size=8, num_mini_batch=20, update_every=1, test_every=0)
    monkeypatch.setitem(SETTINGS, "counted", (algo, *SETTINGS["dqn"][1:]))
    with background("counted", tmp_path / "run", max_steps_ahead=3) as agent:
        Loop("counted").run(agent, 60)
    assert 0 < max(waiting) <= 4
    with pytest.raises(ValueError, match="Agent: max_steps_ahead"):
        background("dqn", tmp_path / "other", max_steps_ahead=0)


def test_an_error_of_an_update_is_raised_in_the_loop(
    blocked: type[Blocked], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocked, "fails", True)
    blocked.allowed.set()
    agent = background("blocked", tmp_path / "run")
    with pytest.raises(ArithmeticError, match="an update failed"):
        Loop("blocked").run(agent, 2_000)
    for call in (agent.save, lambda: agent.act(Loop("blocked").observation)):
        with pytest.raises(ArithmeticError, match="an update failed"):
            call()
    with pytest.raises(ArithmeticError, match="an update failed"):
        agent.close()
    # All is closed nevertheless.
    made("dqn", tmp_path / "run", resume=True).close()


def test_a_closed_agent_refuses_steps_and_checkpoints(tmp_path: Path) -> None:
    agent = background("dqn", tmp_path / "run")
    loop = Loop("dqn")
    loop.run(agent, 5)
    agent.close()
    agent.close()
    with pytest.raises(RuntimeError, match="Agent: it is closed; make another one with resume=True"):
        loop.run(agent, 1)
    with pytest.raises(RuntimeError, match="Agent: it is closed"):
        agent.save()


def test_changed_hyper_parameters_reach_the_actions_without_an_update(tmp_path: Path) -> None:
    with background("dqn", tmp_path / "run") as agent:
        loop = Loop("dqn")
        loop.run(agent, 3)
        agent.save()
        agent.learner.scheme.algorithm.update_algorithm_parameter("epsilon", 0.25)
        loop.run(agent, 1)
        agent.save()
        loop.run(agent, 1)
        assert agent.learner.scheme.algorithm.updates == 0
        acting: Any = agent.policy.algorithm
        assert acting.epsilon == 0.25


UNCLOSED = """
import sys
from pathlib import Path
from tests.pytorchrl.test_background_training import Loop, background

agent = background("sac", Path(sys.argv[1]), steps=100_000)
Loop("sac").run(agent, 60)
raise SystemExit(7)
"""


@pytest.mark.long
def test_a_program_that_ends_without_closing_it_ends_as_it_says(tmp_path: Path) -> None:
    command = [sys.executable, "-c", UNCLOSED, str(tmp_path / "run")]
    ended = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert ended.returncode == 7, ended.stderr


@each_setting
def test_a_saved_run_goes_on_from_the_state_that_it_was_saved_with(setting: str, tmp_path: Path) -> None:
    loop = Loop(setting)
    with background(setting, tmp_path / "run") as agent:
        loop.run(agent, 43)
        agent.save()
        state = agent.learner.scheme.state_dict()
        following = agent.act(loop.observation)
    with background(setting, tmp_path / "run", resume=True) as agent:
        assert_equal(agent.learner.scheme.state_dict(), state)
        assert agent.steps == 43
        np.testing.assert_array_equal(agent.act(loop.observation), following)
        loop.run(agent, 10)
        agent.save()
        assert agent.learner.scheme.steps == 53
    # The other way of training goes on with it as well.
    with made(setting, tmp_path / "run", resume=True) as agent:
        loop.run(agent, 4)
        assert agent.steps == 57


def test_rewards_and_observations_are_normalised_as_without_it(tmp_path: Path) -> None:
    algo, _, storage, _ = SETTINGS["sac"]
    # Nothing is learnt, so that both act alike.
    algo = prl.SAC.create_factory(start_steps=1_000, mini_batch_size=8, test_every=0)
    parts = algo, prl.OffPolicyActor.create_factory(hidden_sizes=(8,), normalize_observations=True), storage
    states, rewards, returns = [], [], []
    for is_background in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(SETTINGS, "normalised", (*parts, "continuous"))
            folder = tmp_path / str(is_background)
            with made(
                "normalised", folder, normalize_rewards="returns", train_in_background=is_background, log_every=20
            ) as agent:
                Loop("normalised").run(agent, 40)
                agent.save()
                scheme = agent.learner.scheme
                assert scheme.actor.normalization is not None
                states.append(scheme.actor.normalization.state_dict())
                rewards.append(scheme.storage.get_all_buffer_data()[REW])
                returns.append(agent.get_metrics())
    assert_equal(*states)
    assert_equal(*rewards)
    assert {name for name in returns[0] if name.startswith("train/")} <= set(returns[1])


def test_probabilities_that_are_stored_are_those_acted_with(tmp_path: Path) -> None:
    with background("ppo with a memory", tmp_path / "run", steps=16) as agent:
        scheme = agent.learner.scheme
        kept: dict[str, Any] = {}
        update = scheme.algorithm.update

        def first(batch: Any) -> Any:
            kept.setdefault(OBS, batch[OBS])
            result = update(batch)
            kept.setdefault("kl", result.metrics["kl"])
            kept.setdefault(LOGP, batch[LOGP])
            return result

        scheme.algorithm.update = first  # type: ignore[method-assign]
        Loop("ppo with a memory").run(agent, 16)
        agent.save()
    assert float(kept["kl"]) == pytest.approx(0, abs=1e-6)


def test_a_collection_of_its_own_is_refused(tmp_path: Path) -> None:
    with pytest.raises(prl.CompositionError, match="train_in_background=True"):
        made("dqn", tmp_path / "run", collection=prl.Overlapped(max_policy_lag=1))
