"""Callbacks: when a run calls them, and the effects of those that the toolkit provides."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import pytorchrl as prl
from pytorchrl.experiments.runs import checkpoint
from pytorchrl.scheme import CompositionError, evaluate
from pytorchrl.scheme.collector import Episode
from tests.support.comparison import assert_equal
from tests.support.compositions import dqn_scheme, ppo_scheme

CARTPOLE = prl.VecEnv.create_factory("CartPole-v1", num_envs=2)


class Noting(prl.Callback):
    """Records the calls that it receives."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.calls: list[str] = []
        self.returns: list[float] = []
        self.steps: list[int] = []
        self.begun: list[int] = []

    def on_run_begin(self, learner: prl.Learner) -> None:
        self.calls.append("begin")

    def on_step_begin(self, learner: prl.Learner) -> None:
        self.begun.append(learner.scheme.steps)

    def on_step(self, learner: prl.Learner) -> None:
        self.steps.append(learner.scheme.steps)

    def on_episodes(self, learner: prl.Learner, episodes: Sequence[Episode]) -> None:
        self.returns += [episode.episode_return for episode in episodes]

    def on_update(self, learner: prl.Learner, metrics: Mapping[str, Any]) -> None:
        assert "loss" in metrics
        self.calls.append("update")

    def on_evaluation(self, learner: prl.Learner, evaluation: prl.Evaluation) -> None:
        self.calls.append(f"evaluation {evaluation.mean_return:.2f}")

    def on_checkpoint(self, learner: prl.Learner, path: Path) -> None:
        assert path.exists()
        self.calls.append("checkpoint")

    def on_run_end(self, learner: prl.Learner) -> None:
        self.calls.append("end")


def records(learner: prl.Learner, name: str) -> list[tuple[float, float]]:
    """(steps, value) of each record of a metric."""
    found = prl.read_metrics(learner.log_dir / "metrics.jsonl")
    return [(record["steps"], record[name]) for record in found if name in record]


def test_a_callback_is_called_at_every_event_of_a_run(tmp_path: Path) -> None:
    noting = Noting()
    learner = prl.Learner(dqn_scheme(), 200, tmp_path / "run", log_every=50, callbacks=[noting])
    assert learner.run()
    learner.close()
    updates = learner.scheme.algorithm.training.counters["updates"]
    assert noting.calls.count("update") == updates > 10
    tested = [f"evaluation {value:.2f}" for _, value in records(learner, "test/return")]
    assert [call for call in noting.calls if call != "update"] == ["begin", *tested, "end", "checkpoint"]
    assert len(tested) == 2
    assert noting.steps[-1] == 200
    assert noting.steps == sorted(set(noting.steps))
    assert noting.begun == [0, *noting.steps[:-1]]
    episodes = sum(number for _, number in records(learner, "train/episodes"))
    assert len(noting.returns) == episodes > 0


def test_a_function_is_called_after_the_phases_that_reach_multiples_of_its_interval(tmp_path: Path) -> None:
    three = prl.VecEnv.create_factory("CartPole-v1", num_envs=3)

    def calls(folder: str, steps: int, every: int | None) -> list[int]:
        called: list[int] = []

        def function(learner: prl.Learner) -> None:
            called.append(learner.scheme.steps)

        given = [prl.AfterSteps(function, every=every)]
        with (
            prl.Learner.resume(tmp_path / folder, target_steps=steps, callbacks=given)
            if (tmp_path / folder).exists()
            else prl.Learner(dqn_scheme(envs=three), steps, tmp_path / folder, callbacks=given)
        ) as learner:
            learner.run()
        return called

    each = calls("each", 120, None)
    assert not any(steps % 50 == 0 for steps in each)
    due = [next(steps for steps in each if steps >= multiple) for multiple in (50, 100)]
    assert calls("every", 120, 50) == due
    # A resumed run does not call it again for a multiple that it has passed.
    assert calls("every", 140, 50) == []
    assert len(calls("every", 160, 50)) == 1


def test_a_run_ends_after_the_step_in_which_a_callback_stops_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class StopAtHundred(prl.Callback):
        def on_step(self, learner: prl.Learner) -> None:
            if learner.scheme.steps >= 100:
                learner.stop("a hundred are enough")

    learner = prl.Learner(dqn_scheme(), 400, tmp_path / "run", callbacks=[StopAtHundred()])
    assert not learner.run()
    assert learner.scheme.steps == 100
    assert "Stopped at 100 of 400 steps, because a hundred are enough; continue" in capsys.readouterr().out
    assert checkpoint.load(tmp_path / "run" / "checkpoint.pt")["scheme"]["collector"]["steps"] == 100


def test_a_run_stops_when_enough_consecutive_evaluations_have_reached_a_return(tmp_path: Path) -> None:
    callback = prl.StopAtReturn(mean_return=50.0, evaluations=2)
    learner = prl.Learner(dqn_scheme(), 10_000, tmp_path / "run", callbacks=[callback])
    returns = iter([60.0, 40.0, 55.0, 51.0, 70.0])

    def evaluate(episodes: int, stopped: Any) -> prl.Evaluation:
        return prl.Evaluation((next(returns),), (1,))

    learner.scheme.evaluate = evaluate  # type: ignore[method-assign]
    assert not learner.run()
    assert learner.scheme.steps == 400


def test_a_run_stops_after_a_number_of_episodes_counted_over_resumes(tmp_path: Path) -> None:
    def stop() -> prl.StopAfter:
        return prl.StopAfter(episodes=12)

    whole = prl.Learner(dqn_scheme(), 5_000, tmp_path / "whole", callbacks=[stop()])
    whole.run()
    part = prl.Learner(dqn_scheme(), 5_000, tmp_path / "part", callbacks=[stop()])
    while part.scheme.steps < whole.scheme.steps // 2:
        part.step()
    part.save_checkpoint()
    part.close()
    resumed = prl.Learner.resume(tmp_path / "part")
    assert not resumed.run()
    assert resumed.scheme.steps == whole.scheme.steps < 5_000


def test_a_run_stops_after_a_number_of_minutes(tmp_path: Path) -> None:
    learner = prl.Learner(dqn_scheme(), 100_000, tmp_path / "run", callbacks=[prl.StopAfter(minutes=1e-6)])
    assert not learner.run()
    # The run is stopped while it collects for the first update.
    assert learner.scheme.steps < 100


def test_a_callback_logs_its_own_metrics(tmp_path: Path) -> None:
    class Log(prl.Callback):
        def on_evaluation(self, learner: prl.Learner, evaluation: prl.Evaluation) -> None:
            learner.log({"mine/longest": max(evaluation.lengths)})

    learner = prl.Learner(dqn_scheme(), 200, tmp_path / "run", callbacks=[Log()])
    learner.run()
    assert [steps for steps, _ in records(learner, "mine/longest")] == [100, 200]
    assert learner.get_metrics()["mine/longest"] >= 1


@pytest.mark.parametrize(
    ("metrics", "match"), [({"steps": 1.0}, "choose another name"), ({"mine": "much"}, "must be a number, got 'much'")]
)
def test_reserved_names_and_values_that_are_not_numbers_are_not_logged(
    metrics: dict[str, Any], match: str, tmp_path: Path
) -> None:
    learner = prl.Learner(dqn_scheme(), 200, tmp_path / "run")
    with pytest.raises(ValueError, match=match):
        learner.log(metrics)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_evaluations_in_further_environments_do_not_change_training(tmp_path: Path) -> None:
    def further() -> list[prl.Callback]:
        short = prl.VecEnv.create_factory("CartPole-v1", num_envs=2, env_kwargs={"max_episode_steps": 5})
        return [
            prl.EvaluateIn(short, "short", every=60, episodes=4),
            prl.EvaluateIn(CARTPOLE, "explored", every=100, episodes=None, steps=150, explore=True),
        ]

    learners = [
        prl.Learner(dqn_scheme(), 200, tmp_path / "plain"),
        prl.Learner(dqn_scheme(), 200, tmp_path / "one", callbacks=further()),
        prl.Learner(dqn_scheme(), 200, tmp_path / "two", callbacks=further()),
    ]
    for learner in learners:
        assert learner.run()
    assert records(learners[1], "test/short/return") == [(steps, 5.0) for steps in (60, 120, 180)]
    assert records(learners[1], "test/short/episode_length") == [(steps, 5.0) for steps in (60, 120, 180)]
    assert [steps for steps, _ in records(learners[1], "test/explored/return")] == [100, 200]
    assert records(learners[1], "test/explored/return") == records(learners[2], "test/explored/return")
    assert_equal(learners[0].scheme.state_dict(), learners[1].scheme.state_dict())
    # The environments and weights are the same, the episodes are others.
    assert records(learners[0], "test/return") != records(learners[1], "test/explored/return")


def test_an_evaluation_limited_by_steps_reports_ended_and_cut_episodes() -> None:
    scheme = ppo_scheme()
    five = prl.VecEnv.create_factory("CartPole-v1", num_envs=2, env_kwargs={"max_episode_steps": 5})()
    evaluation = evaluate(scheme.algorithm, five, None, 0, steps=24)
    assert evaluation.lengths == (5, 5, 5, 5)
    assert not evaluation.episodes_cut
    cut = evaluate(scheme.algorithm, five, None, 0, steps=7)
    assert cut.lengths == (4, 4)
    assert cut.episodes_cut == 2
    five.close()


@pytest.mark.long
def test_callbacks_are_part_of_the_run_and_are_resumed_with_it(tmp_path: Path) -> None:
    def callbacks() -> list[prl.Callback]:
        return [
            prl.EvaluateIn(CARTPOLE, "further", every=30, episodes=2),
            prl.SetHyperParameter("storage", "beta", prl.LinearSchedule(0.4, 1.0)),
            prl.SavePolicies(every=70),
        ]

    def scheme() -> prl.Scheme:
        return dqn_scheme(storage=prl.PERBuffer.create_factory(size=150, alpha=0.5, beta=0.4))

    whole = prl.Learner(scheme(), 300, tmp_path / "whole", callbacks=callbacks())
    whole.run()
    part = prl.Learner(scheme(), 300, tmp_path / "part", callbacks=callbacks())
    while part.scheme.steps < 130:
        part.step()
    part.save_checkpoint()
    part.close()
    resumed = prl.Learner.resume(tmp_path / "part")
    assert resumed.run()
    assert_equal(resumed.scheme.state_dict(), whole.scheme.state_dict())
    assert records(resumed, "test/further/return") == records(whole, "test/further/return")
    names = [sorted(file.name for file in (tmp_path / run / "policies").iterdir()) for run in ("whole", "part")]
    assert names[0] == names[1]
    assert len(names[0]) == 4
    described = json.loads((tmp_path / "part" / "config.json").read_text())["callbacks"]
    assert [one["name"] for one in described] == ["EvaluateIn", "SetHyperParameter", "SavePolicies"]


def test_a_policy_that_was_saved_during_training_acts(tmp_path: Path) -> None:
    learner = prl.Learner(dqn_scheme(), 120, tmp_path / "run", callbacks=[prl.SavePolicies(every=100)])
    learner.run()
    policy = prl.load_policy(tmp_path / "run" / "policies" / "steps-000000100.pt")
    assert policy(np.zeros(4, np.float32)) in (0, 1)


def test_policies_are_not_written_outside_the_run_folder(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run" / "policies").symlink_to(tmp_path / "elsewhere")
    learner = prl.Learner(dqn_scheme(), 120, tmp_path / "run", callbacks=[prl.SavePolicies(every=100)])
    with pytest.raises(prl.PersistenceError, match="symbolic link"):
        learner.run()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_an_unknown_hyper_parameter_is_refused_before_the_first_step(tmp_path: Path) -> None:
    callback = prl.SetHyperParameter("storage", "bta", prl.LinearSchedule(0.0, 1.0))
    learner = prl.Learner(dqn_scheme(), 200, tmp_path / "run", callbacks=[callback])
    with pytest.raises(ValueError, match="bta"):
        learner.run()
    assert learner.scheme.steps == 0


def test_weights_and_gradients_are_logged(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    learner = prl.Learner(
        dqn_scheme(), 200, tmp_path / "run", log_to=["tensorboard"], callbacks=[prl.LogWeights(every=20)]
    )
    learner.run()
    learner.close()
    trained = next(iter(learner.scheme.algorithm.training.groups.values()))
    norm = torch.cat([parameter.detach().ravel() for parameter in trained.parameters.values()]).norm()
    logged = records(learner, f"weights/{trained.name}")
    assert len(logged) == learner.scheme.algorithm.training.counters["updates"] // 20
    assert logged[-1][1] == pytest.approx(float(norm), rel=0.05)
    assert records(learner, f"gradients/{trained.name}")[-1][1] > 0
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"), size_guidance={"histograms": 0}).Reload()
    name = f"weights/{trained.name}.{next(iter(trained.parameters))}"
    assert len(events.Histograms(name)) == len(logged)


def test_a_pruned_trial_ends_its_run(tmp_path: Path) -> None:
    class Trial:
        """The interface of an Optuna trial that the callback uses."""

        def __init__(self) -> None:
            self.reported: list[tuple[float, int]] = []

        def report(self, value: float, step: int) -> None:
            self.reported.append((value, step))

        def should_prune(self) -> bool:
            return len(self.reported) == 2

    trial = Trial()
    callback = prl.PruneTrial(trial)
    learner = prl.Learner(dqn_scheme(), 1_000, tmp_path / "run", callbacks=[callback])
    learner.run()
    assert callback.pruned
    assert trial.reported == [(value, steps) for steps, value in records(learner, "test/return")]
    assert learner.scheme.steps == 200


# The reader's pipes are closed by the garbage collector.
@pytest.mark.quick_share(0.5)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_videos_are_recorded_after_evaluations(suffix: str, tmp_path: Path) -> None:
    imageio = pytest.importorskip("imageio.v3")
    pytest.importorskip("imageio_ffmpeg" if suffix == ".mp4" else "imageio")
    pytest.importorskip("pygame", reason="CartPole renders by pygame")
    callback = prl.RecordVideos(every=2, longest=6, suffix=suffix)
    learner = prl.Learner(dqn_scheme(), 300, tmp_path / "run", callbacks=[callback])
    assert learner.run()
    videos = sorted(file.name for file in (tmp_path / "run" / "videos").iterdir())
    assert videos == [f"steps-{steps:09}{suffix}" for steps in (100, 300)]
    frames = imageio.imread(tmp_path / "run" / "videos" / videos[0])
    assert frames.shape == (7, 400, 600, 3)
    # The pole moves.
    assert (frames[0] != frames[-1]).any()


def test_a_video_of_an_environment_that_renders_no_frames_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("imageio")

    class Blind(gym.Wrapper[Any, Any, Any, Any]):
        def render(self) -> Any:
            return None

    envs = prl.VecEnv.create_factory("CartPole-v1", num_envs=2, wrappers=[Blind])
    learner = prl.Learner(
        dqn_scheme(envs=envs), 200, tmp_path / "run", callbacks=[prl.RecordVideos(longest=2, suffix=".gif")]
    )
    with pytest.raises(ValueError, match=r"steps-000000100\.gif: a frame must be a picture .*render_mode='rgb_array'"):
        learner.run()


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: prl.StopAtReturn("many"), "StopAtReturn: mean_return must be a float, got 'many'"),
        (lambda: prl.StopAfter(), "StopAfter: give minutes or episodes, both are None"),
        (lambda: prl.StopAfter(minutes=0), "StopAfter: minutes must be greater than 0"),
        (lambda: prl.EvaluateIn(CARTPOLE, "x", every=0), "EvaluateIn: every must be at least 1"),
        (lambda: prl.EvaluateIn(CARTPOLE, "x", every=1, steps=5), "give either episodes or steps"),
        (lambda: prl.RecordVideos(suffix=".avi"), "ends in .mp4 or .gif"),
        (
            lambda: prl.SetHyperParameter("actor", "x", prl.LinearSchedule(0, 1)),
            "must be one of 'algorithm', 'storage'",
        ),
    ],
)
def test_invalid_arguments_are_refused_when_a_callback_is_created(make: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make()


def test_invalid_callbacks_are_refused_before_a_folder_is_created(tmp_path: Path) -> None:
    twice = Noting()
    for callbacks in (["print"], [twice, twice], [Noting]):
        with pytest.raises(TypeError, match=r"callbacks\[\d\]"):
            prl.Learner(dqn_scheme(), 200, tmp_path / "run", callbacks=callbacks)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


@dataclass(eq=False)
class Threshold(prl.Callback):
    """A callback of a script, with a parameter and a state."""

    value: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self.seen = 0

    def on_step(self, learner: prl.Learner) -> None:
        self.seen += 1

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.seen = state["seen"]


def test_the_state_of_a_callback_is_restored_to_the_one_with_equal_parameters(tmp_path: Path) -> None:
    saved = [Threshold(1), Threshold(2)]
    learner = prl.Learner(dqn_scheme(), 100, tmp_path / "run", callbacks=saved)
    learner.run()
    learner.close()
    assert saved[0].seen > 0
    given = [Threshold(3), Threshold(2)]
    resumed = prl.Learner.resume(tmp_path / "run", callbacks=given)
    assert [callback.seen for callback in given] == [0, saved[1].seen]
    resumed.close()


def test_a_callback_function_is_called_after_each_step_and_may_end_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    noting, steps = Noting(), list[int]()

    def enough(learner: prl.Learner) -> str | None:
        steps.append(learner.scheme.steps)
        return "60 steps are enough" if learner.scheme.steps >= 60 else None

    learner = prl.Learner(dqn_scheme(), 200, tmp_path / "run", callbacks=[enough, noting])
    assert not learner.run()
    assert steps == noting.steps
    assert 60 <= steps[-1] < 200
    printed = capsys.readouterr().out
    assert "because 60 steps are enough" in printed
    assert "in the script that defines enough, Noting, with the callbacks made as before" in printed
    learner.close()
    with pytest.raises(CompositionError, match=r"Learner\.resume\(log_dir, callbacks=callbacks\)"):
        prl.Learner.resume(tmp_path / "run")
    resumed = prl.Learner.resume(tmp_path / "run", callbacks=[lambda learner: learner.scheme.steps >= 100])
    assert not resumed.run()
    assert 100 <= resumed.scheme.steps < 200
    assert "because <lambda> returned a true value" in capsys.readouterr().out
    resumed.close()


def test_a_configuration_that_names_another_class_as_a_callback_is_refused(tmp_path: Path) -> None:
    learner = prl.Learner(dqn_scheme(), 100, tmp_path / "run")
    learner.save_checkpoint()
    learner.close()
    file = tmp_path / "run" / "config.json"
    config = json.loads(file.read_text())
    config["callbacks"] = [{"name": "Adam", "hyper_parameters": {}}]
    file.write_text(json.dumps(config))
    with pytest.raises(CompositionError, match="which is not a Callback"):
        prl.Learner.resume(tmp_path / "run")


def test_a_method_of_no_event_is_refused_with_the_event_that_may_be_meant() -> None:
    with pytest.raises(
        TypeError, match=r"Own\.on_step_end would never be called; did you mean on_step\? The events are"
    ):

        class Own(prl.Callback):
            def on_step_end(self, learner: prl.Learner) -> None: ...

    with pytest.raises(
        TypeError, match=r"Other\.on_quiet_days would never be called; the events are on_run_begin, on_step_begi"
    ):

        class Other(prl.Callback):
            def on_quiet_days(self) -> None: ...


class ActsBeside(prl.Callback):
    """Plays an episode with the present policy after each evaluation, and logs its length."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.actions: list[Any] = []

    def on_evaluation(self, learner: prl.Learner, evaluation: prl.Evaluation) -> None:
        policy = learner.policy
        self.actions.append(policy(np.full((1, 4), 0.1, np.float32)).tolist())
        self.actions.append(policy.evaluate("CartPole-v1", 2, deterministic=False).mean_return)
        learner.log({"mine/return": self.actions[-1]})


def test_the_present_policy_acts_beside_a_run_and_changes_nothing_in_it(tmp_path: Path) -> None:
    beside = ActsBeside()
    for name, callbacks in (("alone", []), ("beside", [beside])):
        with prl.Learner(dqn_scheme(), 300, tmp_path / name, callbacks=callbacks) as learner:
            learner.run()
            own = learner.policy(np.full((1, 4), 0.1, np.float32)).tolist()
    assert prl.load_policy(tmp_path / "beside")(np.full((1, 4), 0.1, np.float32)).tolist() == own
    assert beside.actions[-2] == own
    assert len(beside.actions) == 6
    records = [prl.read_metrics(tmp_path / name / "metrics.jsonl") for name in ("alone", "beside")]
    kept = [
        [
            {key: value for key, value in one.items() if key not in ("mine/return", "seconds") and "speed" not in key}
            for one in of_run
            if "mine/return" not in one
        ]
        for of_run in records
    ]
    assert kept[0] == kept[1]


def test_a_method_that_an_event_cannot_call_is_refused_with_its_parameters() -> None:
    with pytest.raises(
        TypeError,
        match=r"Short\.on_step\(self\) -> None could not be called for its event; write def on_step\(self, lea",
    ):

        class Short(prl.Callback):
            def on_step(self) -> None: ...  # type: ignore[override]

    with pytest.raises(TypeError, match=r"write def on_evaluation\(self, learner, evaluation\)"):

        class Shorter(prl.Callback):
            @staticmethod
            def on_evaluation(learner: prl.Learner) -> None: ...  # type: ignore[override]


def test_a_method_of_an_event_may_have_other_names_and_further_defaults(tmp_path: Path) -> None:
    seen: list[int] = []

    class Own(prl.Callback):
        def on_step(self, run: prl.Learner, by: int = 2) -> None:
            seen.append(by * run.scheme.steps)

        @staticmethod
        def on_evaluation(*arguments: Any) -> None:
            seen.append(-len(arguments))

    prl.Learner(dqn_scheme(), 200, tmp_path / "run", callbacks=[Own()]).run()
    assert 400 in seen
    assert -2 in seen


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("_on_step", "on_step"),
        ("_on_training_start", "on_run_begin"),
        ("_on_rollout_end", "on_rollout"),
        ("on_training_end", "on_run_end"),
    ],
)
def test_methods_of_callbacks_of_stable_baselines3_are_refused_with_ours(name: str, here: str) -> None:
    with pytest.raises(TypeError, match=rf"Own\.{name} would never be called: here it is {here}\(self, learner\)"):
        type("Own", (prl.Callback,), {name: lambda self: True})


class LooksAtRollouts(prl.Callback):
    """Notes the rewards in the storage before and after the updates, and the updates made until then."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.seen: list[tuple[int, int, float]] = []
        self.left: list[int] = []

    def on_rollout(self, learner: prl.Learner) -> None:
        storage = learner.scheme.storage
        rewards = storage.get_data_slice(0, storage.size)[prl.REW]
        self.seen.append((learner.scheme.steps, learner.scheme.algorithm.updates, float(rewards.sum())))

    def on_step(self, learner: prl.Learner) -> None:
        self.left.append(len(learner.scheme.storage))


def test_a_callback_sees_the_whole_rollout_before_the_updates_and_none_after(tmp_path: Path) -> None:
    scheme = prl.Scheme(
        prl.PPO.create_factory(num_epochs=1, num_mini_batch=4, test_every=0),
        prl.OnPolicyActor.create_factory(hidden_sizes=(4,)),
        prl.GAEBuffer.create_factory(size=16),
        CARTPOLE,
    )
    looks = LooksAtRollouts()
    with prl.Learner(scheme, 64, tmp_path / "run", callbacks=[looks]) as learner:
        learner.run()
    # CartPole pays 1 for each of the 16 steps of 2 environments.
    assert looks.seen == [(32, 0, 32.0), (64, 4, 32.0)]
    assert looks.left == [0, 0]


def test_a_callback_that_logs_nan_is_told_so_once_by_the_name_of_the_metric(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def log(learner: prl.Learner) -> None:
        learner.log({"mine/empty": float("nan"), "mine/full": 1.0})

    with prl.Learner(dqn_scheme(), 100, tmp_path / "run", callbacks=[log]) as learner:
        learner.run()
    printed = capsys.readouterr()
    assert (printed.out + printed.err).count("Warning: 'mine/empty' was logged as NaN at") == 1
    assert "'mine/full'" not in printed.out + printed.err


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("logger", r"learner\.log\(\{"),
        ("locals", r"get_data_slice\(0, .* in on_rollout\(self, learner\)"),
        ("model", r"learner\.scheme\.algorithm"),
        ("num_timesteps", r"learner\.scheme\.steps"),
        ("is_pruned", r"if callback\.pruned: raise optuna\.TrialPruned\(\)"),
    ],
)
def test_attributes_of_other_libraries_callbacks_are_answered_with_ours(name: str, here: str) -> None:
    with pytest.raises(AttributeError, match=rf"'PruneTrial' object has no attribute '{name}': .*{here}"):
        getattr(prl.PruneTrial(None), name)
    assert not hasattr(prl.PruneTrial(None), "no_attribute_of_any_library")


class AnswersWhetherToGoOn(prl.Callback):
    def on_step(self, learner: prl.Learner) -> bool:  # type: ignore[override]
        return False


class AnswersEpisodes(prl.Callback):
    def on_episodes(self, learner: prl.Learner, episodes: Sequence[Episode]) -> bool:  # type: ignore[override]
        return True


@pytest.mark.parametrize("callback", [AnswersWhetherToGoOn, AnswersEpisodes])
def test_a_callback_that_returns_whether_to_go_on_is_refused(callback: type[prl.Callback], tmp_path: Path) -> None:
    with (
        prl.Learner(dqn_scheme(), 300, tmp_path / "run", callbacks=[callback()]) as learner,
        pytest.raises(TypeError, match=r"returned (True|False), .* call learner\.stop\(reason\) to end the run"),
    ):
        learner.run()


@pytest.mark.parametrize(
    "callback",
    [
        lambda: prl.StopAtReturn(1.0),
        lambda: prl.StopAtSuccess(0.5),
        lambda: prl.PruneTrial(None),
        lambda: prl.RecordVideos(suffix=".gif"),
    ],
)
def test_a_callback_of_evaluations_is_refused_in_a_run_without_any(callback: Any, tmp_path: Path) -> None:
    scheme = prl.Scheme(
        prl.DQN.create_factory(test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(4,)),
        prl.ReplayBuffer.create_factory(size=50),
        CARTPOLE,
    )
    with (
        prl.Learner(scheme, 20, tmp_path / "run", callbacks=[callback()]) as learner,
        pytest.raises(ValueError, match="makes no evaluations, as test_every of DQN is 0"),
    ):
        learner.run()


def test_a_decorated_callback_with_an_init_of_its_own_takes_its_arguments_by_name() -> None:
    @dataclass(eq=False)
    class Limited(prl.Callback):
        number: int = 3

        def __init__(self, limit: int, **others: int) -> None:
            super().__init__()
            self.number = limit + sum(others.values())

    assert (Limited(limit=4).number, Limited(4, other=3).number) == (4, 7)
