"""The table of what other libraries have is whole, true, and what `pytorchrl` answers their names from."""

import ast
import functools
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl
from docs.migration_tables import TITLES
from pytorchrl.agent.actors import heads, outputs
from pytorchrl.agent.other_names.items import answers, items
from storages.component.declared import hyper_parameters_of
from storages.component.setting import Setting

SPAN = re.compile(r"`([^`]*)`(?:(?:, `[^`]*`)* of (?:the )?(?:`prl\.([\w.]+)`|(actor|algorithm|storage|learner)\b))?")
FILE = re.compile(r"[\w*]+\.(?:jsonl|json|pt|patch)$")
METRIC = re.compile(r"[a-z]+/[a-z_]+$")
MODULE = re.compile(r"(?:storages|pytorchrl)[\w.]*$")
COMMAND = re.compile(r"python -m pytorchrl (\w+)")
INSTANCES: dict[str, Any] = {
    "storage": prl.PERBuffer,
    "scheme": prl.Scheme,
    "learner": prl.Learner,
    "agent": prl.Agent,
    "algorithm": prl.SAC,
    "actor": prl.OffPolicyActor,
    "policy": prl.TrainedPolicy,
    "exploration": prl.Exploration,
}
"""Names of variables in such code, and their classes."""
BASES = {"actor": (prl.Actor,), "algorithm": (prl.Algorithm,), "storage": (prl.Storage,), "learner": (prl.Learner,)}
FREE = {"len", "next", "size", "num_envs", "batch_size", "max", "truncated", "terminated", "reset", "experiment"}


def unknown(text: str) -> list[str]:
    """The code between backticks that refers to nothing in the package."""
    return [found[0] for found in SPAN.finditer(text) if not _is_known(found[1], found[2], found[3])]


def _is_known(code: str, owner: str | None, role: str | None) -> bool:
    if FILE.match(code):
        return code in _sources("pytorchrl/run_files.py") + _sources("pytorchrl/experiments")
    if METRIC.match(code):
        # Algorithms name their losses and metrics without "losses/".
        known = f"{_sources('docs/logging.md')}{_sources('pytorchrl')}"
        return code in known or f'"{code.removeprefix("losses/")}"' in known
    if command := COMMAND.match(code):
        return (ROOT / "pytorchrl" / "commands").joinpath(f"{command[1]}.py").exists() or command[1] in _commands()
    if MODULE.match(code):
        return _imported(code) is not None
    tree = ast.parse(f"called({code})" if re.match(r"\w+=", code) else code, mode="eval")
    if owner is not None:
        named = [node.arg for node in ast.walk(tree) if isinstance(node, ast.keyword)][:1] or [code.partition("(")[0]]
        return named[0] in members(_public(owner)) or not re.match(r"\w+$", str(named[0]))
    if role is not None and (name := re.match(r"(\w+)(?:$|=)", code)):
        return any(name[1] in members(cls) for cls in _classes(BASES[role]))
    return all(_exists(node) for node in ast.walk(tree))


def _imported(path: str) -> Any:
    """A module, or an attribute of one."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name, None) if module else None


def _exists(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        chain = _chain(node)
        return chain is None or _resolved(chain) is not None
    if isinstance(node, ast.Call):
        called = _chain(node.func)
        keywords = {keyword.arg for keyword in node.keywords if keyword.arg is not None}
        if called is None or called == ["called"]:
            return keywords <= all_members()
        target = _resolved(called)
        return target is not None and keywords <= _parameters(target)
    if isinstance(node, ast.Expression) and isinstance(node.body, ast.Name):
        return node.body.id in all_members() or node.body.id in FREE
    return True


def _chain(node: ast.AST) -> list[str] | None:
    """The names of ``a.b.c``, or None where it begins with something else."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return [node.id, *names] if isinstance(node, ast.Name) else None


def _resolved(chain: list[str]) -> Any:
    first, *rest = chain
    if first == "prl":
        found: Any = prl
    elif first in INSTANCES:
        found = INSTANCES[first]
    elif first in all_members() or first in FREE:
        return first if not rest else None
    else:
        return None
    for name in rest:
        if inspect.isclass(found) and name in members(found):
            found = getattr(found, name, name)
        elif isinstance(found, str) or not hasattr(found, name):
            return None
        else:
            found = getattr(found, name)
    return found


def _parameters(target: Any) -> set[str]:
    if isinstance(target, str):
        return all_members()
    signature = inspect.signature(target)
    names = set(signature.parameters)
    return names | all_members() if any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values()) else names


def _public(name: str) -> Any:
    return functools.reduce(getattr, name.split("."), prl)


@functools.cache
def members(cls: Any) -> frozenset[str]:
    """Attributes, methods, hyper-parameters and arguments of a class or function, and attributes set by methods."""
    if not inspect.isclass(cls):
        return frozenset(inspect.signature(cls).parameters)
    names = set(dir(cls)) | set(inspect.signature(cls.__init__).parameters)
    if hasattr(cls, "create_factory"):
        names |= set(hyper_parameters_of(cls))
    for base in cls.__mro__[:-1]:
        names |= set(vars(base).get("__annotations__", ()))
        if base.__module__.startswith(("pytorchrl", "storages")):
            names |= _set_in(inspect.getfile(base))
    return frozenset(names)


@functools.cache
def _set_in(file: str) -> set[str]:
    """Attributes that the methods of a file set or use."""
    return set(re.findall(r"self\.(\w+)", Path(file).read_text(encoding="utf-8")))


def _classes(bases: tuple[type[Any], ...]) -> Iterator[Any]:
    for name in prl.__all__:
        each = getattr(prl, name)
        if inspect.isclass(each) and issubclass(each, bases):
            yield each


@functools.cache
def all_members() -> frozenset[str]:
    """Names of all public classes, and what they have."""
    everything = [getattr(prl, name) for name in prl.__all__]
    everything += [each for part in (heads, outputs) for each in vars(part).values()]
    classes = [
        each for each in everything if inspect.isclass(each) and each.__module__.startswith(("pytorchrl", "sto"))
    ]
    classes += [prl.planners.CrossEntropy, Setting]
    return frozenset().union(prl.__all__, *(members(cls) for cls in classes if not issubclass(cls, Exception)))


@functools.cache
def _sources(path: str) -> str:
    place = ROOT / path
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


@functools.cache
def _commands() -> str:
    return _sources("pytorchrl/commands")


PFRL = """
    A2C A3C ACER AL ActionValue AdditiveGaussian AdditiveOU Agent Boltzmann Branched CategoricalDQN CategoricalDoubleDQN
    ConstantEpsilonGreedy DDPG DPP DQN DeterministicHead DiscreteActionValue DistributionalDuelingDQN
    DistributionalFCStateQFunctionWithDiscreteAction DistributionalSingleModelStateQFunctionWithDiscreteAction DoubleDQN
    DoublePAL DuelingDQN EmpiricalNormalization EpisodicReplayBuffer Explorer FCBNLateActionSAQFunction FCBNSAQFunction
    FCLSTMSAQFunction FCLateActionSAQFunction FCQuadraticStateQFunction FCSAQFunction FCStateQFunctionWithDiscreteAction
    FactorizedNoisyLinear GaussianHeadWithDiagonalCovariance GaussianHeadWithFixedCovariance
    GaussianHeadWithStateIndependentCovariance Greedy IQN LargeAtariCNN LinearDecayEpsilonGreedy LinearInterpolationHook
    MLP MLPBN PAL PPO PersistentEpisodicReplayBuffer PersistentReplayBuffer PrioritizedEpisodicReplayBuffer
    PrioritizedReplayBuffer QuadraticActionValue REINFORCE Recurrent RecurrentBranched RecurrentSequential ReplayBuffer
    SingleActionValue SingleModelStateActionQFunction SingleModelStateQFunctionWithDiscreteAction SmallAtariCNN
    SoftActorCritic SoftmaxCategoricalHead StateActionQFunction StateQFunction StepHook TD3 TRPO generate_exp_id
    prepare_output_dir to_factorized_noisy train_agent_async train_agent_batch train_agent_batch_with_evaluation
    train_agent_with_evaluation
"""
CHAINERRL = """
    A2C A3C ACER AL ActionValue AdditiveGaussian AdditiveOU Agent Boltzmann CategoricalDQN CategoricalDoubleDQN
    ConstantEpsilonGreedy ContinuousDeterministicDistribution ContinuousDeterministicPolicy DDPG DPP DQN
    DiscreteActionValue Distribution DistributionalDuelingDQN DistributionalFCStateQFunctionWithDiscreteAction
    DistributionalSingleModelStateQFunctionWithDiscreteAction DoubleDQN DoublePAL DuelingDQN EpisodicReplayBuffer
    Explorer FCBNDeterministicPolicy FCBNLateActionSAQFunction FCBNQuadraticStateQFunction FCBNSAQFunction
    FCDeterministicPolicy FCGaussianPolicy FCGaussianPolicyWithFixedCovariance
    FCGaussianPolicyWithStateIndependentCovariance FCLSTMDeterministicPolicy FCLSTMSAQFunction FCLSTMStateQFunction
    FCLateActionSAQFunction FCQuadraticStateQFunction FCSAQFunction FCSoftmaxPolicy FCStateQFunctionWithDiscreteAction
    GaussianDistribution GaussianHeadWithStateIndependentCovariance Greedy IQN LinearDecayEpsilonGreedy
    LinearInterpolationHook MellowmaxDistribution MellowmaxPolicy NSQ PAL PCL PGT PPO Policy
    PrioritizedEpisodicReplayBuffer PrioritizedReplayBuffer QuadraticActionValue REINFORCE Recurrent ReplayBuffer
    ResidualDQN SARSA SingleActionValue SingleModelStateActionQFunction SingleModelStateQFunctionWithDiscreteAction
    SoftActorCritic SoftmaxDistribution SoftmaxPolicy StateActionQFunction StateQFunction StepHook TD3 TRPO
    collect_demonstrations state_kept state_reset train_agent_async train_agent_batch
    train_agent_batch_with_evaluation train_agent_with_evaluation
"""
NNABLA_RL = """
    A2C A2CConfig BCQ BCQConfig BEAR BEARConfig CategoricalDQN CategoricalDQNConfig DDPG DDPGConfig DQN DQNConfig
    DecorableReplayBuffer DeterministicPolicy Distribution Encoder EnvironmentInfo EvaluationHook GAIL GAILConfig
    Gaussian Hook ICML2015TRPO ICML2015TRPOConfig ICML2018SAC ICML2018SACConfig IQN IQNConfig IterationNumHook
    IterationStateHook MemoryEfficientAtariBuffer Model ModelBuilder MunchausenDQN MunchausenDQNConfig MunchausenIQN
    MunchausenIQNConfig PPO PPOConfig Perturbator Policy PreprocessorBuilder PrioritizedReplayBuffer QFunction QRDQN
    QRDQNConfig QuantileDistributionFunction REINFORCE REINFORCEConfig ReplayBuffer ReplayBufferBuilder RewardFunction
    SAC SACConfig SaveSnapshotHook Softmax SolverBuilder SquashedGaussian StateActionQuantileFunction StochasticPolicy
    TD3 TD3Config TRPO TRPOConfig TimeMeasuringHook VFunction ValueDistributionFunction VariationalAutoEncoder
"""
PYTORCHRL = """
    A2C CNN DDPG DDQN DictNet EREBuffer Embedding FixupCNN GAEBuffer GruNet HERBuffer Learner LstmNet MLP MPC_CEM
    MPC_PDDM MPC_RS MPO ModelBasedPlannerActor NStepReplayBuffer OffPolicyActor OnPolicyActor PERBuffer PPO PPODBuffer
    RND_PPO ReplayBuffer SAC Scheme TD3 VTraceBuffer VanillaOnPolicyBuffer VecEnv atari_train_env_factory
    get_feature_extractor get_memory_network
"""
DOCUMENTED = {
    "PFRL": PFRL.split(),
    "ChainerRL": CHAINERRL.split(),
    "nnabla-rl": NNABLA_RL.split(),
    "PyTorchRL": PYTORCHRL.split(),
}


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


@pytest.mark.parametrize(
    "code",
    ["from pytorchrl.common.callbacks import EvalCallback", "import pytorchrl.common", "from pytorchrl import common"],
)
def test_an_import_from_a_module_of_stable_baselines3_says_where_names_are(code: str) -> None:
    with pytest.raises(
        ModuleNotFoundError, match=r"all public names are in pytorchrl itself, .*coming-from-others\.md"
    ):
        exec(code)


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
    for name in modules - {"__main__", "common"}:
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
