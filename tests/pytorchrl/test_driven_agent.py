"""An agent that is driven from outside learns, saves and resumes as one that steps its environments itself."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.experiments.runs.run_folder import RunFolder
from storages.transition import ACT, DONE2, OBS, OBS2
from tests.support.comparison import assert_equal
from tests.support.lessons import Wandering

ACTIONS = {"discrete": spaces.Discrete(3, start=1), "continuous": spaces.Box(-2, 2, (3,), np.float32)}
SETTINGS: dict[str, Any] = {
    "dqn": (
        prl.DQN.create_factory(start_steps=20, mini_batch_size=8, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        prl.PERBuffer.create_factory(size=200, alpha=0.5, n_step=2),
        "discrete",
    ),
    "sac": (
        prl.SAC.create_factory(start_steps=20, mini_batch_size=8, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        prl.ReplayBuffer.create_factory(size=200),
        "continuous",
    ),
    "ppo with a memory": (
        prl.PPO.create_factory(num_mini_batch=1, test_every=0),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,), memory="gru", memory_size=4),
        prl.GAEBuffer.create_factory(size=16),
        "discrete",
    ),
}
each_setting = pytest.mark.parametrize("setting", SETTINGS)


def made(setting: str, log_dir: Path, num_envs: int | None = None, steps: int = 90, **given: Any) -> prl.Agent:
    *factories, actions = SETTINGS[setting]
    return prl.Agent(
        *factories,
        log_dir,
        steps,
        observation_space=Wandering(None).observation_space,
        action_space=ACTIONS[actions],
        num_envs=num_envs,
        seed=3,
        **given,
    )


class Loop:
    """An environment and the loop around it, which goes on where it stopped."""

    def __init__(self, setting: str, limit: int = 7) -> None:
        self.env = gym.wrappers.TimeLimit(Wandering(ACTIONS[SETTINGS[setting][-1]]), limit)
        self.observation, _ = self.env.reset(seed=0)
        self.actions: list[Any] = []

    def run(self, agent: prl.Agent, steps: int) -> None:
        for _ in range(steps):
            action = agent.act(self.observation)
            assert self.env.action_space.contains(action)
            self.actions.append(np.array(action))
            following, reward, terminated, truncated, info = self.env.step(action)
            agent.observe(following, reward, terminated, truncated, info)
            self.observation = self.env.reset()[0] if terminated or truncated else following


@each_setting
def test_what_is_observed_is_what_is_stored_and_learnt_from(setting: str, tmp_path: Path) -> None:
    with made(setting, tmp_path / "run") as agent:
        loop = Loop(setting)
        scheme = agent.learner.scheme
        before = scheme.algorithm.get_weights()
        loop.run(agent, 60)
        assert agent.steps == 60
        assert agent.episodes == 12
        after = scheme.algorithm.get_weights()
        assert any((after[name] != weight).any() for name, weight in before.items())
        assert_stored(agent, loop)


def assert_stored(agent: prl.Agent, loop: Loop) -> None:
    """Assert that replay holds the 60 actions of a loop, and its 12 episodes."""
    storage = agent.learner.scheme.storage
    if not storage.on_policy:
        stored = storage.get_all_buffer_data()
        start = getattr(loop.env.action_space, "start", 0)
        acted = np.stack(loop.actions).reshape(60, -1) - start
        np.testing.assert_array_equal(stored[ACT].reshape(60, -1), acted)
        assert stored[DONE2].sum() == 12


@each_setting
def test_a_run_saved_in_an_episode_resumes_exactly(setting: str, tmp_path: Path) -> None:
    with made(setting, tmp_path / "whole") as whole:
        expected = Loop(setting)
        expected.run(whole, 80)
        state = whole.learner.scheme.algorithm.state_dict()
    loop = Loop(setting)
    with made(setting, tmp_path / "run", resume=True) as agent:
        loop.run(agent, 43)
        agent.save()
        # Lost with the process.
        assert agent.act(loop.observation) is not None
    with made(setting, tmp_path / "run", resume=True) as agent:
        assert agent.steps == 43
        loop.run(agent, 37)
        assert_equal(agent.learner.scheme.algorithm.state_dict(), state)
    np.testing.assert_array_equal(np.stack(loop.actions), np.stack(expected.actions))


def test_another_observation_after_a_resume_begins_another_episode(tmp_path: Path) -> None:
    loop = Loop("dqn")
    with made("dqn", tmp_path / "run") as agent:
        loop.run(agent, 43)
        agent.save()
    with made("dqn", tmp_path / "run", resume=True) as agent:
        Loop("dqn").run(agent, 7)
        stored = agent.learner.scheme.storage.get_all_buffer_data()
        assert agent.steps == 50
    # The transition before the cut is not that before the first of the new episode.
    assert not np.array_equal(stored[OBS2][42], stored[OBS][43])


def test_an_observation_that_does_not_follow_is_refused(tmp_path: Path) -> None:
    loop = Loop("dqn")
    with made("dqn", tmp_path / "run") as agent:
        loop.run(agent, 2)
        with pytest.raises(ValueError, match="environment 0 is in the middle of an episode, but this is another"):
            agent.act(loop.observation + 1)
        loop.run(agent, 2)


def test_an_action_asked_for_twice_is_the_same_and_a_result_needs_one(tmp_path: Path) -> None:
    loop = Loop("sac")
    with made("sac", tmp_path / "run") as agent:
        np.testing.assert_array_equal(agent.act(loop.observation), agent.act(loop.observation))
        loop.run(agent, 1)
        with pytest.raises(RuntimeError, match="no action was asked for"):
            agent.observe(loop.observation, 0.0, terminated=False)


@each_setting
def test_acting_without_training_is_the_policys_and_changes_nothing(setting: str, tmp_path: Path) -> None:
    both = []
    for looks in (False, True):
        with made(setting, tmp_path / str(looks)) as agent:
            loop = Loop(setting)
            for _ in range(40):
                loop.run(agent, 1)
                if looks:
                    agent.act(loop.observation, training=False)
            both.append(loop.actions)
    np.testing.assert_array_equal(*map(np.stack, both))


def test_several_environments_are_told_together(tmp_path: Path) -> None:
    with made("dqn", tmp_path / "run", num_envs=3) as agent:
        envs = gym.vector.SyncVectorEnv(
            [lambda: Wandering(ACTIONS["discrete"])] * 3, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP
        )
        observations, _ = envs.reset(seed=1)
        for _ in range(20):
            actions = agent.act(observations)
            assert actions.shape == (3,)
            following, rewards, terminated, truncated, infos = envs.step(actions)
            last = following.copy()
            for env in np.flatnonzero(terminated | truncated):
                last[env] = infos["final_obs"][env]
            agent.observe(last, rewards, terminated, truncated)
            observations = following
        assert agent.steps == 60
        assert agent.episodes == 12
        with pytest.raises(ValueError, match="got observations of 2 environments, num_envs is 3"):
            agent.act(observations[:2])
        with pytest.raises(ValueError, match=r"observations must be \(E, \.\.\.\) of 3 environments"):
            agent.act(observations[0])


def test_beyond_its_target_it_acts_and_learns_no_more(tmp_path: Path) -> None:
    with made("dqn", tmp_path / "run", steps=33) as agent:
        loop = Loop("dqn")
        loop.run(agent, 33)
        assert agent.done
        weights = agent.learner.scheme.algorithm.get_weights()
        loop.run(agent, 10)
        assert agent.steps == 33
        assert_equal(agent.learner.scheme.algorithm.get_weights(), weights)


@pytest.mark.parametrize("in_background", [False, True], ids=["at once", "in the background"])
def test_an_agent_that_is_closed_at_its_target_is_saved(
    in_background: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with made("dqn", tmp_path / "run", steps=33, train_in_background=in_background) as agent:
        loop = Loop("dqn")
        loop.run(agent, 33)
    chosen = agent.policy(loop.observation)
    assert prl.load_policy(tmp_path / "run")(loop.observation) == chosen
    assert "not saved" not in capsys.readouterr().out
    saved = (tmp_path / "run" / "checkpoint.pt").stat().st_mtime_ns
    with made("dqn", tmp_path / "run", steps=33, resume=True):
        pass
    assert (tmp_path / "run" / "checkpoint.pt").stat().st_mtime_ns == saved


def test_an_agent_that_is_closed_before_its_target_says_what_it_loses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = made("dqn", tmp_path / "run")
    Loop("dqn").run(agent, 33)
    agent.close()
    agent.close()
    lost = f"The agent was closed at 33 of 90 steps; the last 33 are not saved in {tmp_path / 'run'}: agent.save()"
    assert capsys.readouterr().out.count(lost) == 1
    with pytest.raises(prl.CheckpointError, match=r"an Agent when it is closed at its target, and by agent.s"):
        prl.load_policy(tmp_path / "run")


def test_an_agent_whose_last_update_failed_is_not_saved_at_its_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(**_: Any) -> Any:
        raise ArithmeticError

    with made("dqn", tmp_path / "run", steps=36) as agent:
        loop = Loop("dqn")
        loop.run(agent, 32)
        monkeypatch.setattr(agent.learner.scheme, "update", fails)
        with pytest.raises(ArithmeticError):
            loop.run(agent, 4)
        assert agent.done
    assert not (tmp_path / "run" / "checkpoint.pt").exists()


def test_metrics_checkpoints_and_episodes_are_those_of_a_run(tmp_path: Path) -> None:
    with made("dqn", tmp_path / "run", checkpoint_every=25, log_every=20) as agent:
        loop = Loop("dqn", limit=4)
        loop.run(agent, 60)
        assert agent.get_metrics()["train/episode_length"] == 4
    records = prl.read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [record["steps"] for record in records if "losses/loss" in record] == [24, 40, 60]
    with made("dqn", tmp_path / "run", resume=True) as agent:
        assert agent.steps == 50


def trained_elsewhere(folder: Path) -> Path:
    """A run of a learner, with the networks of the agents above."""
    algorithm, actor, storage, actions = SETTINGS["dqn"]
    envs = prl.VecEnv.create_factory(lambda: Wandering(ACTIONS[actions]))
    with prl.Learner(prl.Scheme(algorithm, actor, storage, envs, seed=1), 40, folder) as learner:
        learner.run(progress=False)
    return folder


@pytest.mark.parametrize("in_background", [False, True])
def test_an_agent_starts_from_a_run_of_a_learner(in_background: bool, tmp_path: Path) -> None:
    run = trained_elsewhere(tmp_path / "elsewhere")
    with made("dqn", tmp_path / "run", train_in_background=in_background) as agent:
        before = agent.policy.algorithm.get_weights()
        assert prl.start_from(agent, run) == ["q"]
        weights = prl.load_policy(run).algorithm.get_weights()
        assert_equal(agent.policy.algorithm.get_weights(), weights)
        assert any((before[name] != weights[name]).any() for name in before)
        config = RunFolder(tmp_path / "run").read_config()
        assert config["started_from"]["networks"] == ["q"]
        Loop("dqn").run(agent, 30)
        agent.save()
        with pytest.raises(RuntimeError, match="has made 30 steps already"):
            prl.start_from(agent, run)
    with made("dqn", tmp_path / "run", resume=True) as resumed:
        assert resumed.steps == 30
        assert RunFolder(tmp_path / "run").read_config()["started_from"] == config["started_from"]


def test_an_agent_that_resumes_a_run_of_a_learner_hears_how_to_start_from_it(tmp_path: Path) -> None:
    run = trained_elsewhere(tmp_path / "elsewhere")
    said = "steps its environments itself.*another log_dir, and call prl.start_from\\(agent, "
    with pytest.raises(prl.CheckpointError, match=said):
        made("dqn", run, resume=True)


def test_a_scheme_that_resumes_a_run_of_an_agent_hears_how_to_start_from_it(tmp_path: Path) -> None:
    with made("dqn", tmp_path / "run") as agent:
        agent.save()
    algorithm, actor, storage, actions = SETTINGS["dqn"]
    envs = prl.VecEnv.create_factory(lambda: Wandering(ACTIONS[actions]))
    with prl.Scheme(algorithm, actor, storage, envs, seed=3) as scheme:
        with pytest.raises(prl.CheckpointError, match=r"a run of prl.Agent.*resume=True.*prl.start_from\(scheme, "):
            prl.Learner.resume(tmp_path / "run", scheme=scheme)
        assert prl.start_from(scheme, tmp_path / "run") == ["q"]


def test_a_run_of_an_agent_that_nothing_here_can_step_names_its_program(tmp_path: Path) -> None:
    with made("dqn", tmp_path / "run") as agent:
        agent.save()
    with pytest.raises(prl.CompositionError, match=r"a prl.Agent, whose program steps.*start that program again"):
        prl.Learner.resume(tmp_path / "run")
    with pytest.raises(prl.CompositionError, match=r"prl.load_policy\(.*\).evaluate\(ENV\)"):
        prl.load_policy(tmp_path / "run").evaluate()


def test_an_agent_with_other_hyper_parameters_hears_how_to_change_them_once_resumed(tmp_path: Path) -> None:
    with made("dqn", tmp_path / "run") as agent:
        agent.save()
    _, actor, storage, actions = SETTINGS["dqn"]
    changed = prl.DQN.create_factory(start_steps=20, mini_batch_size=8, test_every=0, gamma=0.5)
    spaces_of = {"observation_space": Wandering(None).observation_space, "action_space": ACTIONS[actions]}
    said = r"agent.learner.scheme.algorithm.update_algorithm_parameter\('gamma', 0.5\).*prl.start_from\(agent"
    with pytest.raises(prl.CheckpointError, match=said):
        prl.Agent(changed, actor, storage, tmp_path / "run", 90, seed=3, resume=True, **spaces_of)
    with made("dqn", tmp_path / "run", resume=True) as agent:
        agent.learner.scheme.algorithm.update_algorithm_parameter("gamma", 0.5)
        assert agent.learner.scheme.algorithm.gamma == 0.5


def test_only_a_scheme_a_learner_or_an_agent_starts_from_a_run(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="a scheme, a learner or an agent, got str"):
        prl.start_from("runs/new", tmp_path)  # type: ignore[arg-type]
