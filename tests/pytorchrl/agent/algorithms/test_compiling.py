"""With ``compile=True``, losses and gradients are compiled, and everything else stays as it is."""

import copy
import functools
import os
import pickle
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import pytorchrl as prl
from pytorchrl.agent.algorithms import compiling
from storages.transition import OBS, Batch
from tests.support.every_algorithm import ACTIONS
from tests.support.lessons import BODY, CASES, Case, Wandering, lesson, parameters

# Of torch's own modules, while it traces.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
]

UPDATES = 50
CASE_OF = {str(case): case for case in CASES}
DQN, PPO = CASE_OF["DQN-discrete"], CASE_OF["PPO-bounded"]


needs_compiler = pytest.mark.skipif(
    shutil.which(os.environ.get("CXX", "g++")) is None, reason="there is no C++ compiler, which torch.compile calls"
)


@pytest.fixture(autouse=True)
def compiled_apart() -> Iterator[None]:
    """Forget what was compiled for other tests."""
    yield
    compiling._compiled.cache_clear()
    torch.compiler.reset()


@pytest.fixture
def inductor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The settings of torch's compiler, which works in this process and in a folder of the test."""
    from torch._inductor import config

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    with config.patch({"compile_threads": 1}):
        yield config


Backend = Callable[[str | Callable[..., Any]], None]


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Backend:
    """Choose what compiles the operations that torch has traced; "eager" calls them as they are, and is quick."""

    def choose(backend: str | Callable[..., Any]) -> None:
        @functools.cache
        def compiled(function: Callable[..., Any], mode: str | None) -> Callable[..., Any]:
            return torch.compile(function, backend=backend)

        monkeypatch.setattr(compiling, "_compiled", compiled)

    return choose


class Graphs:
    """Counts the graphs that are compiled."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        """Return the graph as it is."""
        self.count += 1
        return graph.forward


def twins(case: Case) -> tuple[prl.Algorithm, prl.Algorithm]:
    """The algorithm of a case twice in the same state; the second is compiled."""
    plain, compiled = lesson(case).twin(), lesson(case).twin()
    vars(compiled)["compile"] = True  # in a copy, as an assignment is refused once an algorithm is made
    return plain, compiled


def learn(case: Case, *algorithms: prl.Algorithm, updates: int = UPDATES) -> None:
    """Update algorithms on the batches of a case, in turn."""
    for algorithm in algorithms:
        for update in range(updates):
            algorithm.update(batch_of(case, update))


def batch_of(case: Case, update: int = 0) -> Batch:
    """A batch for an update."""
    batch: Batch = copy.deepcopy(lesson(case).batches[update % 2])
    return batch


def check_same(ours: prl.Algorithm, theirs: prl.Algorithm) -> None:
    """Check that weights are the same up to rounding, and random states to the bit."""
    expected = parameters(theirs)
    for name, parameter in parameters(ours).items():
        assert torch.allclose(parameter, expected[name], rtol=0, atol=1e-5), name
    assert all(map(torch.equal, ours.random_state(), theirs.random_state()))


# Numbers


@needs_compiler
@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        "DQN-discrete",
        "QRDQN-discrete",
        "SAC-bounded",
        "TD3-bounded",
        "PPO-discrete",
        "PPO-bounded",
        "A2C-discrete",
        "A2C-bounded",
        "IQL-bounded",
    ],
)
def test_compiled_updates_lead_to_the_same_weights(name: str, inductor: Any) -> None:
    case = CASE_OF[name]
    plain, compiled = twins(case)
    before = copy.deepcopy(parameters(compiled))
    learn(case, plain, compiled)
    check_same(compiled, plain)
    assert any(not torch.equal(before[name], each) for name, each in parameters(compiled).items())


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        *("SAC-bounded", "TD3-bounded", "PPO-several", "CQL-bounded", "HyAR-hybrid"),
        *("ReBRAC-bounded", "FQL-bounded", "MRQ-bounded", "DrQV2-bounded", "SPR-discrete"),
    ],
)
def test_random_numbers_are_drawn_in_the_same_order(name: str, backend: Backend) -> None:
    backend("eager")
    plain, traced = twins(CASE_OF[name])
    learn(CASE_OF[name], plain, traced, updates=5)
    check_same(traced, plain)


def test_gradients_that_are_computed_separately_are_compiled_too(backend: Backend) -> None:
    graphs = Graphs()
    backend(graphs)
    plain, traced = twins(PPO)
    ours, theirs = (algorithm.compute_gradients(batch_of(PPO))[0] for algorithm in (traced, plain))
    assert graphs.count > 0
    assert ours.keys() == theirs.keys()
    assert all(torch.allclose(ours[name], theirs[name], rtol=0, atol=1e-6) for name in ours)


@pytest.mark.gpu
@pytest.mark.parametrize("algorithm", [prl.SAC, prl.TD3])
def test_graphs_of_a_gpu_lead_to_the_same_weights(algorithm: type[prl.Algorithm]) -> None:
    envs = prl.VecEnv(Wandering, 2, env_kwargs={"actions": ACTIONS["bounded"]})
    made = []
    for is_compiled in (False, True):
        torch.manual_seed(0)
        actor = prl.OffPolicyActor.create_factory(**BODY)("cuda", envs)
        made.append(algorithm.create_factory(compile=is_compiled)("cuda", actor, envs))
        made[-1].seed(0)
    metrics = []
    for update in range(UPDATES):
        batch = {
            name: value.cuda() for name, value in batch_of(CASE_OF[f"{algorithm.__name__}-bounded"], update).items()
        }
        results = [each.update(copy.copy(batch)).metrics for each in made]
        metrics.append(results)
    check_same(made[1], made[0])
    # Those of earlier updates, whose memory graphs use again.
    for plain, compiled in metrics:
        for name in plain:
            assert float(compiled[name]) == pytest.approx(float(plain[name]), rel=1e-3, abs=1e-4), name


# What is compiled anew


def test_steps_of_the_optimiser_compile_nothing_anew(backend: Backend) -> None:
    graphs = Graphs()
    backend(graphs)
    _, traced = twins(DQN)
    learn(DQN, traced, updates=20)
    assert graphs.count == 1


@pytest.mark.long
def test_batches_of_other_sizes_compile_once_more(backend: Backend) -> None:
    graphs = Graphs()
    backend(graphs)
    plain, traced = twins(DQN)
    rows = len(batch_of(DQN)[OBS])
    for size in (*range(2, rows + 1), *range(2, rows + 1)):
        for algorithm in (plain, traced):
            algorithm.update({name: value[:size] for name, value in batch_of(DQN).items()})
    check_same(traced, plain)
    assert graphs.count == 2


@pytest.mark.long
def test_hyper_parameters_of_a_schedule_follow_it(backend: Backend) -> None:
    """More values than torch compiles anew for, from where it computes them as they are."""
    backend("eager")
    plain, traced = twins(PPO)
    for update in range(30):
        for algorithm in (plain, traced):
            algorithm.clip_param = prl.LinearSchedule(0.2, 0.0)  # type: ignore[attr-defined]
            algorithm.set_progress(update, 30)
            learn(PPO, algorithm, updates=1)
    check_same(traced, plain)


def test_layers_that_are_frozen_later_stay(backend: Backend) -> None:
    backend("eager")
    plain, traced = twins(PPO)
    learn(PPO, plain, traced, updates=2)
    for algorithm in (plain, traced):
        for parameter in list(parameters(algorithm).values())[::2]:
            parameter.requires_grad_(False)
    frozen = [each.clone() for each in parameters(traced).values() if not each.requires_grad]
    learn(PPO, plain, traced, updates=2)
    check_same(traced, plain)
    assert all(map(torch.equal, frozen, (each for each in parameters(traced).values() if not each.requires_grad)))


# Checkpoints and copies


def test_checkpoints_do_not_say_whether_losses_are_compiled(backend: Backend) -> None:
    backend("eager")
    plain, traced = twins(DQN)
    learn(DQN, plain, traced, updates=3)
    states = [algorithm.state_dict() for algorithm in (plain, traced)]
    assert states[0].keys() == states[1].keys()
    assert states[0]["changed"] == states[1]["changed"]
    plain.load_state_dict(states[1])
    traced.load_state_dict(states[0])
    assert (plain.compile, traced.compile) == (False, True)
    learn(DQN, plain, traced, updates=3)
    check_same(traced, plain)


def test_algorithms_are_copied_and_pickled_with_nothing_compiled(backend: Backend) -> None:
    backend("eager")
    _, traced = twins(DQN)
    learn(DQN, traced, updates=1)
    for other in (copy.deepcopy(traced), pickle.loads(pickle.dumps(traced))):
        assert other.compile
        check_same(other, traced)


@needs_compiler
@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_process_compiles_too(inductor: Any) -> None:
    """Torch compiles in processes of the parent, which do not answer a forked one."""
    with inductor.patch({"compile_threads": 2}):
        _, compiled = twins(DQN)
        learn(DQN, compiled, updates=1)
        case = CASE_OF["QRDQN-discrete"]
        _, other = twins(case)
        child = os.fork()
        if child == 0:
            signal.alarm(120)
            try:
                learn(case, other, updates=1)
                os._exit(0)
            finally:
                os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


# Errors


def test_an_error_of_compilation_names_the_algorithm_and_the_way_out(backend: Backend) -> None:
    def compiles_nothing(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        raise OSError("there is no room for kernels")

    backend(compiles_nothing)
    _, compiled = twins(DQN)
    with pytest.raises(
        RuntimeError, match=r"^DQN: torch cannot compile its losses here: .*no room for kernels"
    ) as error:
        learn(DQN, compiled, updates=1)
    assert "leave out compile=True" in str(error.value)


@needs_compiler
@pytest.mark.long
def test_a_missing_compiler_is_named(inductor: Any) -> None:
    _, compiled = twins(DQN)
    with (
        inductor.patch({"cpp.cxx": (None, "no-such-compiler")}),
        pytest.raises(RuntimeError, match=r"^DQN: torch cannot compile its losses here: .*compiler"),
    ):
        learn(DQN, compiled, updates=1)


def test_errors_of_the_losses_are_their_own(backend: Backend) -> None:
    backend("eager")

    class Refusing(prl.DQN):
        def losses(self, rows: prl.Rows) -> prl.Losses:
            raise KeyError("of the losses")

    refusing = lesson(DQN).twin(lambda cls: Refusing)
    vars(refusing)["compile"] = True
    with pytest.raises(KeyError, match="of the losses"):
        learn(DQN, refusing, updates=1)


@pytest.mark.parametrize(
    ("algorithm", "actions", "why"),
    [
        (prl.TRPOSinglePath, "discrete", "it learns by none"),
        (prl.ACER, "discrete", "its trust region"),
        (prl.EDAC, "bounded", "it differentiates the critics' gradients"),
    ],
)
def test_what_cannot_be_compiled_is_refused_at_once(algorithm: Any, actions: str, why: str) -> None:
    envs = prl.VecEnv(Wandering, 2, env_kwargs={"actions": ACTIONS[actions]})
    actors: Any = prl.OnPolicyActor if algorithm is prl.TRPOSinglePath else prl.OffPolicyActor
    actor = actors.create_factory(**BODY)("cpu", envs)
    with pytest.raises(ValueError, match=rf"^{algorithm.__name__}: compile=True .*{why}.*leave out compile"):
        algorithm.create_factory(compile=True)("cpu", actor, envs)
