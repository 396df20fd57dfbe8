"""``python -m pytorchrl train`` and the commands for runs: composing, training, resuming, listing and others."""

import inspect
import re
import sys
from pathlib import Path

import pytest

import pytorchrl as prl
from pytorchrl.__main__ import main
from pytorchrl.agent.algorithms import Algorithm
from pytorchrl.commands.composition.described_run import described_run
from pytorchrl.commands.composition.description import merge_descriptions
from pytorchrl.commands.composition.parts import TextError, make_parts, part_named, value_of
from pytorchrl.commands.composition.presets import preset_of
from pytorchrl.experiments.runs.run_folder import RunFolder
from storages import Storage
from storages.persistent.log.lock import Lock
from tests.support.data_sets import recorded

SMALL = ("--actor.hidden-sizes", "8", "--algorithm.start-steps", "40", "--algorithm.test-every", "100")


def _is_algorithm(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Algorithm) and not inspect.isabstract(value)


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> None:
    monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", *map(str, arguments)])
    main()


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-1e-3", -1e-3),
        ("relu", "relu"),
        ("64,64", [64, 64]),
        ("[]", []),
        ("none", None),
        ("true", True),
        ("False", False),
        ("'a text'", "a text"),
        ("runs/buffer", "runs/buffer"),
        ("ALE/Pong-v5", "ALE/Pong-v5"),
        ("two words", "two words"),
        ("{'max_episode_steps': 5}", {"max_episode_steps": 5}),
        ("LinearSchedule(1e-3, 0)", prl.LinearSchedule(1e-3, 0.0)),
        ("Sequences(20, burn_in=5)", prl.Sequences(20, burn_in=5)),
        (
            "UniformUntil(10, EpsilonGreedy(LinearSchedule(1.0, 0.1)))",
            prl.UniformUntil(10, prl.EpsilonGreedy(prl.LinearSchedule(1.0, 0.1))),
        ),
        (0.5, 0.5),
        (["1", {"a": "none"}], [1, {"a": None}]),
    ],
)
def test_texts_of_options_are_parsed_to_values(text: object, value: object) -> None:
    assert value_of(text) == value


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("LinearSchedule(1e-3", "cannot parse"),
        ("LinearSchedule(1)", "final"),
        ("LinearSchedule(1, 0, fraction=3)", r"fraction must lie in \(0, 1\]"),
        ("open('/etc/passwd')", "there is no setting 'open'"),
        ("__import__('os')", "there is no setting '__import__'"),
        ("ReplayBuffer(5)", "there is no setting 'ReplayBuffer'"),
        ("LinearShedule(1, 0)", "there is no setting 'LinearShedule', .* did you mean LinearSchedule"),
        ("Unheard(1)", "there is no setting 'Unheard', .* --import the module that defines it"),
        ("os.system('ls')", "is not a setting with plain arguments"),
        ("Adam(**{'eps': 1})", "is not a setting with plain arguments"),
    ],
)
def test_a_text_can_create_only_settings(text: str, match: str) -> None:
    with pytest.raises(TextError, match=match):
        value_of(text)


@pytest.mark.parametrize(
    ("kind", "name", "cls"),
    [
        (Algorithm, "sac", prl.SAC),
        (Algorithm, "munchausen-dqn", prl.MunchausenDQN),
        (Storage, "per", prl.PERBuffer),
        (Storage, "PERBuffer", prl.PERBuffer),
        (Storage, "nstep", prl.NStepReplayBuffer),
        (Storage, "replay", prl.ReplayBuffer),
        (Storage, "persistent_episodic", prl.PersistentEpisodicBuffer),
        (prl.Actor, "on-policy", prl.OnPolicyActor),
    ],
)
def test_a_part_is_found_by_a_shorter_name(kind: type, name: str, cls: type) -> None:
    assert part_named(kind, name) is cls


NEEDED = {
    **dict.fromkeys(
        ("ACER", "ACERContinuous", "BBF", "DecisionTransformer", "PCL", "SPR", "TDMPC2", "UnifiedPCL"),
        "give it sequences=",
    ),
    **dict.fromkeys(("AIRL", "AMP", "GAIL", "PPOD"), "give it sources="),
    "BehaviourCloning": "learns from a data set",
    "DAgger": "expert must be a function",
    "DreamerV3": 'give the actor memory="gru"',
    "HyAR": "wrappers=['JoinActions'] joins",
    "R2D2": 'give it memory="lstm"',
    "Rainbow": "give the actor noisy=True",
    "TRPOSinglePath": "cut_episodes='drop'",
}
"""Remedies in the errors of algorithms that cannot be make_parts with default parts."""


def test_every_algorithm_is_composed_by_default_or_names_what_it_needs() -> None:
    errors = {}
    for name in prl.__all__:
        cls = getattr(prl, name)
        if not _is_algorithm(cls):
            continue
        env = "Pendulum-v1" if cls.actions in ("box", "bounded") else "CartPole-v1"
        try:
            parts = make_parts(merge_descriptions({"algorithm": {"name": name}, "env": {"name": env}}))
            assert parts.storage.cls.on_policy == (cls.sources["main"].kind == "rollout"), name
            assert parts.actor.cls is (prl.OnPolicyActor if parts.storage.cls.on_policy else prl.OffPolicyActor), name
            parts.scheme(seed=1, device="cpu").close()
        except ValueError as error:
            errors[name] = str(error)
    assert set(errors) == set(NEEDED)
    for name, needed in NEEDED.items():
        assert needed in errors[name]


@pytest.mark.parametrize(("name", "num_envs"), [("Rainbow", 1), ("SPR", 1), ("BBF", 1), ("R2D2", 4), ("DreamerV3", 4)])
def test_presets_of_the_command_line_equal_the_small_ones_of_the_classes(name: str, num_envs: int) -> None:
    chosen = {"algorithm": {"name": name}, "env": {"name": "CartPole-v1"}}
    parts = make_parts(merge_descriptions(preset_of(getattr(prl, name), "CartPole-v1")[0], chosen))
    small = getattr(prl, name).small(num_envs=num_envs)
    assert small["algo_factory"].hyper_parameters | {"test_every": 0} == parts.algorithm.hyper_parameters | {
        "test_every": 0
    }
    assert parts.actor == small["actor_factory"]
    storage = small["storage_factory"]
    assert parts.storage.config == storage.cls.create_factory(**storage.hyper_parameters).config
    assert parts.envs.hyper_parameters["num_envs"] == num_envs


@pytest.fixture(scope="module")
def data_sets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("data")
    return {env: recorded(folder / f"{env}.npz", env) for env in ("CartPole-v1", "Pendulum-v1")}


EXPERT = "def left(observations):\n    return observations[:, :1].astype(int) * 0\n"


@pytest.mark.quick_share(0.4)
@pytest.mark.parametrize("name", sorted(name for name in prl.__all__ if _is_algorithm(getattr(prl, name))))
def test_every_algorithm_is_composed_on_the_command_line_with_parts_that_suit_it(
    name: str, data_sets: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    cls = getattr(prl, name)
    env = "Pendulum-v1" if cls.actions in ("box", "bounded") else "CartPole-v1"
    options = ["--algorithm", name, "--env", env]
    if cls.actions == "hybrid":
        tasks = Path(__file__).parents[2] / "support" / "hybrid_tasks.py"
        options[-1:] = ["Steering", "--import", str(tasks), "--env.wrappers", "[JoinActions]"]
    if cls is prl.DAgger:
        (tmp_path / "my_teacher.py").write_text(EXPERT)
        options += ["--import", "my_teacher.py", "--algorithm.expert", "left"]
    if not cls.sources["main"].collected or len(cls.sources) > 1:
        options += ["--data", str(data_sets[env])]
    scheme = described_run(options).scheme(1)
    assert type(scheme.algorithm) is cls
    scheme.close()


def test_parts_of_a_preset_that_a_chosen_class_does_not_have_are_left_out() -> None:
    scheme = described_run(["--algorithm", "acer", "--env", "MountainCar-v0", "--storage", "per"]).scheme(1)
    assert scheme.factories[2].hyper_parameters["sequences"] == prl.Sequences(20, across_episodes=True)
    scheme.close()
    with pytest.raises(prl.CompositionError, match="ACER learns from replayed transitions, but GAEBuffer holds one"):
        described_run(["--algorithm", "acer", "--env", "MountainCar-v0", "--storage", "gae"]).scheme(1)


@pytest.mark.long
def test_train_runs_several_seeds_and_continues_them_with_more_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["train", "--algorithm", "dqn", "--env", "CartPole-v1", "--storage", "per", "--storage.alpha", "0.6"]
    arguments += [*SMALL, "--seeds", "1", "2"]
    command(monkeypatch, *arguments, "--steps", "200")
    output = printed(capsys)
    assert "Preset: DQN, CartPole-v1; --no-preset disables it." in output
    assert "PERBuffer(size=100000, alpha=0.6)" in output
    assert "runs/DQN-CartPole-v1/seed-2: seed 2, 0 of 200 steps" in output
    assert "Learning curve: runs/DQN-CartPole-v1/learning_curve.png" in output
    config = RunFolder("runs/DQN-CartPole-v1/seed-2").read_config()
    assert config["seed"] == 2
    assert config["storage"] == prl.PERBuffer.create_factory(size=100_000, alpha=0.6).config
    assert config["algorithm"]["hyper_parameters"]["mini_batch_size"] == 64
    assert config["actor"]["hyper_parameters"]["hidden_sizes"] == [8]
    command(monkeypatch, *arguments, "--steps", "300")
    assert "seed-2: seed 2, 200 of 300 steps" in printed(capsys)
    returns = [record.get("test/return") for record in prl.read_metrics("runs/DQN-CartPole-v1/seed-2/metrics.jsonl")]
    assert len([value for value in returns if value is not None]) == 3


@pytest.mark.long
@pytest.mark.parametrize("has_data", [False, True], ids=["environment", "data"])
def test_runs_of_seeds_that_have_finished_are_not_opened_again(
    has_data: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["train", "--algorithm", "dqn", "--env", "CartPole-v1", "--no-preset", "--actor.hidden-sizes", "8"]
    arguments += ["--log-dir", "runs", "--log-to", "tensorboard", "--device", "cpu"]
    if has_data:
        recorded(tmp_path / "data.npz")
        arguments += ["--data", "data.npz", "--online"]
    command(monkeypatch, *arguments, "--steps", "60", "--seeds", "1")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs" / "seed-1").rglob("*")}
    assert any("tfevents" in path.name for path in before)
    capsys.readouterr()
    command(monkeypatch, *arguments, "--steps", "60", "--seeds", "1", "2")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "runs" / "seed-1").rglob("*")} == before
    text = printed(capsys)
    assert "runs/seed-1: seed 1 has finished runs/seed-2: " in text
    assert "runs/seed-2: seed 2, 0 of 60 steps" in text
    command(monkeypatch, *arguments, "--steps", "60", "--seeds", "1", "--log-to", "wandb")
    text = printed(capsys)
    assert (
        "seed 1 has finished; nothing more is logged, although --log-to names others than it was trained with" in text
    )
    # Another composition is refused, as that of an unfinished run.
    with pytest.raises(SystemExit, match=r"algorithm.gamma: 0.5 here, 0.99 in the checkpoint"):
        command(monkeypatch, *arguments, "--steps", "60", "--seeds", "1", "--algorithm.gamma", "0.5")


def test_a_seed_whose_folder_is_in_use_is_left_out_and_named_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["train", "--algorithm", "dqn", "--env", "CartPole-v1", *SMALL, "--steps", "60", "--log-dir", "runs"]
    Path("runs/seed-1").mkdir(parents=True)
    lock = Lock(Path("runs/seed-1"))
    with pytest.raises(SystemExit, match=r"^error: seed 1 left out, as in use.* runs/seed-1 is in use by process"):
        command(monkeypatch, *arguments, "--seeds", "1", "2")
    shown = capsys.readouterr()
    assert "runs/seed-1: seed 1 is left out, as its folder is in use" in shown.err
    assert "Learning curve: runs/learning_curve.png" in shown.out
    assert RunFolder("runs/seed-2").checkpoint_file.is_file()
    assert [path.name for path in Path("runs/seed-1").glob("*.json*")] == []
    lock.release()
    command(monkeypatch, *arguments, "--seeds", "1", "2")
    assert RunFolder("runs/seed-1").checkpoint_file.is_file()


def test_callbacks_are_given_with_arguments_and_each_seed_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["train", "--algorithm", "dqn", "--env", "CartPole-v1", *SMALL, "--steps", "1_000", "--seeds", "1", "2"]
    arguments += ["--algorithm.test-every", "50", "--callbacks", "StopAtReturn(1)", "ResetNetworks(20, last_layers=1)"]
    command(monkeypatch, *arguments)
    output = printed(capsys)
    assert output.count("because a mean return of 1 was reached") == 2
    assert "Learning curve: runs/DQN-CartPole-v1/learning_curve.png" in output
    for seed in (1, 2):
        config = RunFolder(f"runs/DQN-CartPole-v1/seed-{seed}").read_config()
        assert config["callbacks"] == [prl.StopAtReturn(1).config, prl.ResetNetworks(20, last_layers=1).config]


@pytest.mark.parametrize(
    ("callback", "match"),
    [
        ("RecordVideo()", "there is no setting 'RecordVideo', which 'RecordVideo()' names; did you mean RecordVideos?"),
        ("StopAtReturn(goal=1)", "StopAtReturn: unknown argument 'goal'; there are mean_return, evaluations"),
        ("Adam()", "--callbacks: 'Adam()' is neither a callback with its arguments, such as StopAtReturn(475), nor"),
        ("StopAtReturn", "nor a function of a module that --import names; write 'StopAtReturn(...)'"),
        ("LogWeights", "nor a function of a module that --import names; write 'LogWeights()'"),
        ("enough", "--callbacks: 'enough' is neither a callback with its arguments, such as StopAtReturn(475), nor"),
    ],
)
def test_invalid_callbacks_are_refused_before_a_run_begins(
    callback: str, match: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=re.escape(match)):
        command(monkeypatch, "train", "--algorithm", "dqn", "--env", "CartPole-v1", "--callbacks", callback)
    assert not (tmp_path / "runs").exists()


def write_module(name: str, monkeypatch: pytest.MonkeyPatch, folder: Path, content: str) -> None:
    """Write a module into the folder, work there, and restore ``sys.path`` after the test."""
    (folder / f"{name}.py").write_text(content)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])


def test_an_imported_module_provides_algorithms_and_environments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_module(
        "my_parts_of_a_command",
        monkeypatch,
        tmp_path,
        "import gymnasium as gym\n"
        "import pytorchrl as prl\n"
        "gym.register('MyCartPole-v0', 'gymnasium.envs.classic_control.cartpole:CartPoleEnv', max_episode_steps=9)\n"
        "class MyDoubleDQN(prl.DQN):\n"
        "    gamma = 0.5\n",
    )
    arguments = ["--algorithm", "my-double-dqn", "--env", "MyCartPole-v0", *SMALL, "--steps", "100"]
    command(monkeypatch, "train", "--import", "my_parts_of_a_command", *arguments)
    config = RunFolder("runs/MyDoubleDQN-MyCartPole-v0/seed-1").read_config()
    assert config["algorithm"]["name"] == "MyDoubleDQN"
    assert config["algorithm"]["hyper_parameters"]["gamma"] == 0.5
    capsys.readouterr()


def test_an_imported_module_provides_a_network_and_a_callback_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_module(
        "my_functions_of_a_command",
        monkeypatch,
        tmp_path,
        "import torch\n"
        "class MyLayers(torch.nn.Linear):\n"
        "    def __init__(self, space):\n"
        "        super().__init__(space.shape[0], 3)\n"
        "def stop_early(learner):\n"
        "    return 'it is enough' if learner.scheme.steps >= 60 else None\n",
    )
    arguments = ["--algorithm", "dqn", "--env", "CartPole-v1", *SMALL, "--steps", "100"]
    arguments += ["--import", "my_functions_of_a_command", "--actor.feature-extractor", "MyLayers"]
    command(monkeypatch, "train", *arguments, "--callbacks", "stop_early")
    assert "because it is enough" in printed(capsys)
    policy = prl.load_policy("runs/DQN-CartPole-v1/seed-1")
    assert any(type(module).__name__ == "MyLayers" for module in policy.algorithm.actor.modules())


@pytest.mark.parametrize("text", ["AfterSteps(stop_late, every=40)", "AfterSteps(function=stop_late, every=40)"])
def test_a_function_of_an_imported_module_is_an_argument_of_a_callback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    module = f"my_function_that_stops_{len(text)}"
    source = "def stop_late(learner):\n    return f'it was called at {learner.scheme.steps}'\n"
    write_module(module, monkeypatch, tmp_path, source)
    arguments = ["--algorithm", "dqn", "--env", "CartPole-v1", *SMALL, "--algorithm.start-steps", "10"]
    command(monkeypatch, "train", *arguments, "--steps", "200", "--import", module, "--callbacks", text)
    assert "because it was called at 40" in printed(capsys)
    with pytest.raises(SystemExit, match="function must be callable, got 'no_such_function'"):
        command(monkeypatch, "train", *arguments, "--callbacks", "AfterSteps(no_such_function)", "--log-dir", "other")


def test_a_function_that_two_imported_modules_define_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("my_first_function_of_two", "my_second_function_of_two")
    for name in names:
        write_module(name, monkeypatch, tmp_path, "def end_of_two(learner):\n    return True\n")
    arguments = ["--algorithm", "dqn", "--env", "CartPole-v1", "--callbacks", "end_of_two"]
    imports = [word for name in names for word in ("--import", name)]
    with pytest.raises(SystemExit, match="define end_of_two; import one of them"):
        command(monkeypatch, "train", *arguments, *imports)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--env", "CartPole-v1"), "error: no algorithm is given; name one by --algorithm"),
        (("--algorithm", "dqn"), "error: no env is given; name one by --env"),
        (("--algorithm", "dqm", "--env", "CartPole-v1"), "error: there is no algorithm 'dqm'; did you mean DQN?"),
        (
            ("--algorithm", "dqn", "--env", "CartPole-v1", "--storage", "per", "--storage.alpha", "2"),
            "error: PERBuffer: alpha must lie in [0, 1], got 2",
        ),
        (
            ("--config", "nowhere.yaml"),
            "error: the configuration file nowhere.yaml cannot be read: No such file or directory",
        ),
    ],
)
def test_invalid_compositions_are_refused_in_one_line_before_a_run_begins(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        command(monkeypatch, "train", *arguments)
    assert str(stopped.value).startswith(message)
    assert "\n" not in str(stopped.value)
    assert not (tmp_path / "runs").exists()


def test_an_unknown_option_is_refused_with_the_nearest_valid_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command(monkeypatch, "train", "--algorithm", "dqn", "--env", "CartPole-v1", "--algorithm.test_evry", "3")
    assert "there is no option --algorithm.test-evry; did you mean --algorithm.test-every?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "found"),
    [
        ("normalise-observations", "actor.normalize-observations"),
        ("normalize_observations", "actor.normalize-observations"),
        ("hidden_sizes", "actor.hidden-sizes"),
        ("net-arch", "actor.hidden-sizes"),
    ],
)
def test_an_option_of_another_part_is_refused_with_that_part(
    option: str, found: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command(monkeypatch, "train", "--algorithm", "dqn", "--env", "CartPole-v1", f"--algorithm.{option}", "3")
    said = capsys.readouterr().err
    assert f"there is no option --algorithm.{option.replace('_', '-')}; " in said
    assert f" --{found}" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--env.episode-infos", "cost", "comfort"),
            "values of --env.episode-infos are separated by commas: --env.epi",
        ),
        (("--env.episode_infos=cost", "comfort", "--steps", "9"), "commas: --env.episode-infos cost,comfort"),
        (("--algorithm.lr", "0.1", "0.2"), "--algorithm.lr takes one value, got 0.1 0.2; quote a value with spaces"),
        (("CartPole-v1",), "there is no option CartPole-v1"),
    ],
)
def test_values_that_the_shell_has_separated_are_refused_with_what_to_write(
    arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command(monkeypatch, "train", *arguments, "--algorithm=dqn", "--env=CartPole-v1")
    assert message in capsys.readouterr().err


def test_help_lists_the_options_of_the_named_classes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command(monkeypatch, "train", "--algorithm", "sac", "--storage", "per", "--help")
    output = printed(capsys)
    for expected in ("--algorithm.lr-q", "--storage.alpha", "--actor.hidden-sizes", "--env.num-envs"):
        assert expected in output
    assert "discount factor of one step (default: 0.99)" in output


def test_runs_are_listed_and_evaluated_without_being_modified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command(monkeypatch, "ls")
    assert printed(capsys) == "There is no run in runs."
    arguments = ["--algorithm", "dqn", "--env", "CartPole-v1", *SMALL, "--steps", "100", "--seeds", "7"]
    command(monkeypatch, "train", *arguments)
    before = {file: file.read_bytes() for file in (tmp_path / "runs").glob("**/*") if file.is_file()}
    capsys.readouterr()
    command(monkeypatch, "ls")
    output = printed(capsys)
    assert "DQN" in output
    assert " 7 " in output
    command(monkeypatch, "evaluate", "runs/DQN-CartPole-v1/seed-7", "--episodes", "3")
    assert "3 episodes: mean return" in printed(capsys)
    command(monkeypatch, "evaluate", "runs/DQN-CartPole-v1/seed-7", "--episodes", "1", "--explore")
    assert "1 episode: mean return" in printed(capsys)
    assert {file: file.read_bytes() for file in (tmp_path / "runs").glob("**/*") if file.is_file()} == before


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_a_policy_is_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command(monkeypatch, "train", "--algorithm", "dqn", "--env", "CartPole-v1", *SMALL, "--steps", "50")
    capsys.readouterr()
    command(monkeypatch, "export", "runs/DQN-CartPole-v1/seed-1", "-o", "policy.pt2")
    assert printed(capsys) == "policy.pt2"
    assert (tmp_path / "policy.pt2").stat().st_size > 0


def test_record_writes_a_video_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("imageio")
    pytest.importorskip("pygame", reason="CartPole renders by pygame")
    monkeypatch.chdir(tmp_path)
    arguments = ["--algorithm", "dqn", "--env", "CartPole-v1", *SMALL, "--steps", "100"]
    command(monkeypatch, "train", *arguments)
    capsys.readouterr()
    command(monkeypatch, "record", "runs/DQN-CartPole-v1/seed-1", "-o", "policy.gif", "--longest", "3")
    assert printed(capsys) == "The beginning of an episode, of 3 steps, return 3.00 policy.gif"
    assert (tmp_path / "policy.gif").read_bytes().startswith(b"GIF")


def test_the_version_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    command(monkeypatch, "--version")
    assert printed(capsys).startswith("pytorchrl ")
