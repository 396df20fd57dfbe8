"""The examples: each trains by a function call, and is a script with an option for each of its arguments."""

import importlib.util
import os
import runpy
import signal
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import pytorchrl as prl
from examples import (
    bc_cartpole,
    bcq_pendulum,
    dqn_atari,
    dqn_cartpole,
    dqn_her_bitflipping,
    dqn_memory_cartpole,
    gail_cartpole,
    iqn_cartpole,
    naf_pendulum,
    ppo_cartpole,
    ppo_memory_cartpole,
    qrdqn_cartpole,
    rainbow_minatar,
    reinforce_cartpole,
    sac_discrete_cartpole,
    sac_her_pointmaze,
    sac_memory_pendulum,
    sac_pendulum,
    td3_pendulum,
    trpo_cartpole,
)
from pytorchrl.commands.shared import STOPPED
from pytorchrl.experiments import RunFolder
from pytorchrl.experiments.runs import storage_paths
from pytorchrl.scheme import evaluate
from tests.support.profiles import FULL, NIGHTLY

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = {
    "bc_cartpole": bc_cartpole,
    "bcq_pendulum": bcq_pendulum,
    "dqn_atari": dqn_atari,
    "dqn_cartpole": dqn_cartpole,
    "dqn_her_bitflipping": dqn_her_bitflipping,
    "dqn_memory_cartpole": dqn_memory_cartpole,
    "gail_cartpole": gail_cartpole,
    "naf_pendulum": naf_pendulum,
    "iqn_cartpole": iqn_cartpole,
    "ppo_cartpole": ppo_cartpole,
    "ppo_memory_cartpole": ppo_memory_cartpole,
    "qrdqn_cartpole": qrdqn_cartpole,
    "rainbow_minatar": rainbow_minatar,
    "reinforce_cartpole": reinforce_cartpole,
    "sac_discrete_cartpole": sac_discrete_cartpole,
    "sac_her_pointmaze": sac_her_pointmaze,
    "sac_memory_pendulum": sac_memory_pendulum,
    "sac_pendulum": sac_pendulum,
    "td3_pendulum": td3_pendulum,
    "trpo_cartpole": trpo_cartpole,
}


PACKAGES = {
    "dqn_atari": ("ale_py",),
    "rainbow_minatar": ("minatar",),
    "sac_her_pointmaze": ("gymnasium_robotics",),
}
"""Optional packages that the environments of examples need."""


def test_every_example_is_tested() -> None:
    # The loop of one's own and the web service have no factory arguments, and tests of their own.
    others = ["own_loop", "serve_policy"]
    assert sorted(path.stem for path in (ROOT / "examples").glob("*.py")) == sorted([*EXAMPLES, *others])


SLOW = ("bc", "dqn_atari", "dqn_memory", "iqn", "naf", "qrdqn", "rainbow", "sac", "td3")


@pytest.mark.quick_share(0.1)
@pytest.mark.parametrize(
    "name",
    [
        # Others of the same families resume, too.
        pytest.param(name, marks=[pytest.mark.long, *([FULL] if name in ("dqn_atari", "sac_memory_pendulum") else [])])
        if name.startswith(SLOW)
        else name
        for name in EXAMPLES
    ],
)
@pytest.mark.usefixtures("drawn_curves")
def test_an_example_trains_by_a_function_call_and_its_run_resumes(name: str, tmp_path: Path) -> None:
    for package in PACKAGES.get(name, ()):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the package {package} is not installed")
    example = EXAMPLES[name]
    arguments = example.Arguments(target_steps=1_200, test_every=600, log_dir=tmp_path / "run")
    learner = example.train(arguments)
    assert learner.done()
    assert learner.curve_file.is_file()
    data = storage_paths.data_sets_of(RunFolder(tmp_path / "run").read_config())
    learner = prl.Learner.resume(tmp_path / "run", data=data, target_steps=1_500)
    assert learner.run()
    learner.close()


def test_an_example_that_a_signal_stopped_ends_with_the_status_of_the_commands(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    step = prl.Learner.step

    def interrupted_step(learner: prl.Learner) -> None:
        step(learner)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(prl.Learner, "step", interrupted_step)
    script = str(ROOT / "examples" / "dqn_cartpole.py")
    monkeypatch.setattr(sys, "argv", [script, "--log-dir", str(tmp_path / "run")])
    with pytest.raises(SystemExit, match=f"^{STOPPED}$"):
        runpy.run_path(script, run_name="__main__")
    assert RunFolder(tmp_path / "run").checkpoint_file.is_file()


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_tells_a_job_scheduler_that_it_was_stopped(name: str) -> None:
    lines = (ROOT / "examples" / f"{name}.py").read_text("utf-8").splitlines()
    assert lines[-2] == "    if learner.was_interrupted:"
    assert lines[-1].startswith(f"        raise SystemExit({STOPPED})")


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_argument_of_an_example_is_an_option_with_a_help_text(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = str(ROOT / "examples" / f"{name}.py")
    monkeypatch.setattr(sys, "argv", [script, "--help"])
    with pytest.raises(SystemExit, match=r"^0$"):
        runpy.run_path(script, run_name="__main__")
    printed = capsys.readouterr().out
    for field in fields(EXAMPLES[name].Arguments):
        option = f"--{field.name.replace('_', '-')}"
        described = printed[printed.index(option) + len(option) :]
        assert len(described.split("--")[0].split()) > 3, f"{option} has no help text"


# The thresholds are those of the table in docs/learning.md, which has three seeds of each example. One example of each
# family is always trained, that of DQN by `make train`. The nightly ones take one to four minutes; `test_chains` and
# `test_chains_by_rollouts` show in seconds that their algorithms learn.
@pytest.mark.parametrize(
    ("name", "threshold"),
    [
        ("bc_cartpole", 475),
        pytest.param("dqn_cartpole", 450, marks=FULL),
        ("dqn_her_bitflipping", -11.5),
        ("gail_cartpole", 450),
        pytest.param("naf_pendulum", -160, marks=NIGHTLY),
        pytest.param("iqn_cartpole", 450, marks=NIGHTLY),
        ("ppo_cartpole", 475),
        pytest.param("qrdqn_cartpole", 450, marks=NIGHTLY),
        pytest.param("reinforce_cartpole", 400, marks=FULL),
        pytest.param("sac_discrete_cartpole", 450, marks=NIGHTLY),
        pytest.param("sac_pendulum", -160, marks=NIGHTLY),
        ("td3_pendulum", -160),
        pytest.param("trpo_cartpole", 475, marks=NIGHTLY),
    ],
)
@pytest.mark.long
def test_an_example_reaches_its_threshold(name: str, threshold: float, tmp_path: Path) -> None:
    example = EXAMPLES[name]
    learner = example.train(example.Arguments(log_dir=tmp_path / "run", test_every=0))
    envs = prl.VecEnv.create_factory(example.Arguments().env, num_envs=20)()
    evaluation = evaluate(learner.scheme.algorithm, envs, 20, np.random.SeedSequence(7))
    envs.close()
    assert evaluation.mean_return >= threshold


@FULL
@pytest.mark.long
def test_bcq_reaches_nine_tenths_of_the_return_of_its_data(tmp_path: Path) -> None:
    arguments = bcq_pendulum.Arguments(log_dir=tmp_path / "run", test_every=0)
    learner = bcq_pendulum.train(arguments)
    envs = prl.VecEnv.create_factory(arguments.env, num_envs=20)()
    evaluation = evaluate(learner.scheme.algorithm, envs, 20, np.random.SeedSequence(7))
    envs.close()
    # Returns are negative costs: the cost of the policy may be a ninth larger.
    assert evaluation.mean_return >= bcq_pendulum.behaviour_return(arguments) / 0.9


@FULL
@pytest.mark.long
def test_without_hindsight_dqn_rarely_reaches_the_goal_bits(tmp_path: Path) -> None:
    arguments = dqn_her_bitflipping.Arguments(her_ratio=0.0, log_dir=tmp_path / "run")
    learner = dqn_her_bitflipping.train(arguments)
    assert learner.get_metrics()["test/return"] < -14
