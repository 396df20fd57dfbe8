"""Parts of each kind that a user's script defines train, are continued by the script, and are refused if misused."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pytorchrl as prl
from pytorchrl.experiments.runs import checkpoint
from storages.transition import OBS
from tests.support import own_parts, warm_interpreter
from tests.support.comparison import assert_equal

RESUME_ALL = """
import sys
from dataclasses import dataclass
from pathlib import Path
import pytorchrl as prl

for run in sorted(Path(sys.argv[1]).iterdir()):
    try:
        prl.Learner.resume(run)
    except prl.CompositionError as error:
        print(error)
"""


def run_python(folder: Path, *arguments: str) -> str:
    """Run Python with access to the packages but not to the tests, and return its output."""
    finished = warm_interpreter.run(arguments, folder, strict=True)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.mark.long
def test_parts_of_a_script_train_and_are_continued_exactly_and_only_by_the_script(tmp_path: Path) -> None:
    shutil.copy(own_parts.__file__, tmp_path / "own_parts.py")
    run_python(tmp_path, "own_parts.py", "train", "runs")

    refused = run_python(tmp_path, "-c", RESUME_ALL, "runs").splitlines()
    remedy = (
        "import the module that defines it, before this call in Python, by --import MODULE in a command, or make the "
        "scheme in a script and pass it: "
        "Learner.resume(log_dir, scheme=scheme), or Learner(scheme, ...)"
    )
    parts = {name: f"class {name} of a script" for name in own_parts.SCHEMES}
    parts |= {name: f"class or function {name}" for name in ("Waves", "Decaying")}
    expected = [
        f"the run was composed with the {parts[name]}; {remedy}"
        for name in sorted(own_parts.SCHEMES)
        for _ in ("stopped", "whole")
    ]
    assert refused == expected

    run_python(tmp_path, "own_parts.py", "continue", "runs")
    for name in own_parts.SCHEMES:
        files = (tmp_path / "runs" / run / "checkpoint.pt" for run in (name, f"{name}-whole"))
        continued, whole = (checkpoint.load(file)["scheme"] for file in files)
        assert continued["algorithm"]["training"]["counters"]["updates"] > 1
        assert_equal(continued, whole, name)


@pytest.mark.parametrize("name", own_parts.SCHEMES)
def test_a_part_of_a_script_acts_and_learns(name: str) -> None:
    scheme = own_parts.SCHEMES[name]()
    updates = 0
    while not updates:
        scheme.set_progress(scheme.steps, 100)
        _, due = scheme.collect(100)
        updates = sum(1 for _ in range(due) for _ in scheme.update())
    scheme.close()


@pytest.mark.parametrize(
    ("cls", "given", "message"),
    [
        (own_parts.ConservativeDQN, {"conservatsm": 1.0}, "ConservativeDQN: unknown .* did you mean 'conservatism'"),
        (own_parts.SoftQLearning, {"entropi": 1.0}, "SoftQLearning: unknown .* did you mean 'entropy'"),
        (own_parts.SoftQLearning, {"tau": 0.1}, "SoftQLearning: unknown .* here it is polyak, which is 1 - tau"),
        (prl.SAC, {"n_steps": 3}, "SAC: unknown .* here it is n_step of the storage"),
        (prl.PPO, {"n_steps": 3}, "PPO: unknown .* here it is size of the storage, the steps of a rollout"),
        (own_parts.FittedValues, {"learning_rate": 0.1}, "FittedValues: unknown .* here it is lr"),
        (own_parts.SpectralActor, {"power_iteration": 1}, "SpectralActor: unknown .* did you mean 'power_iterations'"),
        (own_parts.ClippingBuffer, {"size": 9, "klip": 1.0}, "ClippingBuffer: unknown .* did you mean 'clip'"),
        (own_parts.Lion, {"beta3": 1.0}, "Lion: unknown argument 'beta3'"),
    ],
)
def test_a_misspelt_hyper_parameter_of_a_users_class_is_refused_with_the_right_name(
    cls: Any, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        getattr(cls, "create_factory", cls)(**given)


@pytest.mark.parametrize(
    ("cls", "given", "message"),
    [
        (own_parts.ConservativeDQN, {"conservatism": -1.0}, "ConservativeDQN: conservatism must be .* got -1.0"),
        (own_parts.SoftQLearning, {"polyak": 1.5}, r"SoftQLearning: polyak must lie in \[0, 1\], got 1.5"),
        (own_parts.SoftQLearning, {"lr": own_parts.Halving(-1.0, every=1)}, "SoftQLearning: lr must be"),
        (own_parts.SpectralActor, {"power_iterations": 0}, "SpectralActor: power_iterations must be .* got 0"),
        (own_parts.ClippingBuffer, {"size": 9, "clip": 0.0}, "ClippingBuffer: clip must be .* got 0.0"),
        (own_parts.Lion, {"beta1": 2.0}, r"Lion: beta1 must lie in \[0, 1\], got 2.0"),
        (own_parts.Halving, {"initial": 1.0, "every": 0}, "Halving: every must be .* got 0"),
        (own_parts.Sticky, {"probability": 0.5, "then": "greedy"}, "Sticky: then must be .* got 'greedy'"),
    ],
)
def test_a_value_outside_its_range_is_refused_with_the_name_of_the_users_class(
    cls: Any, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        getattr(cls, "create_factory", cls)(**given)


def test_a_scheme_refuses_a_users_explorer_that_does_not_fit_the_network() -> None:
    algorithm = prl.DQN.create_factory(explorer=own_parts.Sticky(0.1, then=prl.Sample()))
    with pytest.raises(TypeError, match=r"Sample needs a distribution, .* explore with EpsilonGreedy"):
        own_parts.composed(algorithm)


class Uneven(nn.Module):
    """Features of the wrong shape."""

    def __init__(self, space: Any) -> None:
        super().__init__()

    def forward(self, observation: Tensor) -> Tensor:
        return observation[:, None]


class Twofold(Uneven):
    """Features of the wrong kind."""

    def forward(self, observation: Tensor) -> Any:
        return observation, observation


@pytest.mark.parametrize(
    ("extractor", "error", "message"),
    [
        (Uneven, ValueError, r"feature_extractor Uneven must return a Tensor \(B, n\) .* returned \(2, 1, 4\)"),
        (Twofold, TypeError, r"feature_extractor Twofold must return a Tensor \(B, n\) .* returned a tuple of 2"),
        (nn.Linear(4, 4), TypeError, "feature_extractor is an instance of Linear; .* pass the class, or a function"),
        (lambda space: 4, TypeError, r"feature_extractor <lambda> must make a torch.nn.Module .* got a int"),
    ],
)
def test_a_users_encoder_that_returns_no_features_is_refused_by_name(
    extractor: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        own_parts.composed(actor=prl.OffPolicyActor.create_factory(feature_extractor=extractor))


def test_a_users_algorithm_without_losses_is_refused_by_name() -> None:
    class Idle(prl.PolicyGradient):
        def build(self) -> None:
            self.make_networks()

    scheme = own_parts.composed(
        Idle.create_factory(), prl.OnPolicyActor.create_factory(), prl.GAEBuffer.create_factory(size=4)
    )
    _, due = scheme.collect(8)
    assert due == 1
    with pytest.raises(NotImplementedError, match="Idle defines no"):
        list(scheme.update())
    scheme.close()


def test_a_scheme_refuses_a_users_output_that_no_explorer_can_use() -> None:
    class Nothing(nn.Module):
        def forward(self, features: Tensor) -> Any:
            return torch.Generator()

    class Head:
        def build(self, features: int, actor: prl.Actor) -> nn.Module:
            return Nothing()

    class Blind(own_parts.SoftQLearning):
        def build(self) -> None:
            self.q = self.actor.make("q", Head(), acts=True)

    with pytest.raises(TypeError, match="Blind: Boltzmann needs values of discrete actions, the network gives Gener"):
        own_parts.composed(Blind.create_factory())


@dataclass(frozen=True)
class Uniform(prl.Explorer):
    """Takes any output."""

    def act(self, output: Any, exploration: prl.Exploration) -> Tensor:
        return exploration.uniform_actions()


def test_an_output_without_a_greedy_action_is_refused_unless_never_evaluated() -> None:
    class Numbers(nn.Module):
        def forward(self, features: Tensor) -> Any:
            return {"values": features}

    class Head:
        def build(self, features: int, actor: prl.Actor) -> nn.Module:
            return Numbers()

    class Aimless(own_parts.SoftQLearning):
        def build(self) -> None:
            self.q = self.actor.make("q", Head(), acts=True)

        def default_explorer(self) -> prl.Explorer:
            return Uniform()

    with pytest.raises(TypeError, match=r"Aimless: a dict has no greedy action: .* test_every=0"):
        own_parts.composed(Aimless.create_factory())
    own_parts.composed(Aimless.create_factory(test_every=0)).close()


class Tempered(own_parts.SoftQLearning):
    """Logs its variable as it is, of shape (1,)."""

    def losses(self, rows: prl.Rows) -> prl.Losses:
        losses = super().losses(rows)
        losses.metrics["log_temperature"] = self.training.variables["log_temperature"].detach()
        return losses


def test_a_variable_that_a_users_algorithm_logs_is_logged_and_saved_by_a_resumed_run(tmp_path: Path) -> None:
    def scheme() -> prl.Scheme:
        return own_parts.composed(Tempered.create_factory(lr=0.0, start_steps=4, mini_batch_size=4, test_every=0))

    with prl.Learner(scheme(), target_steps=20, log_dir=tmp_path / "run") as learner:
        while not learner.scheme.algorithm.updates:
            learner.step()
        learner.save_checkpoint()
    with prl.Learner.resume(tmp_path / "run", scheme=scheme()) as resumed:
        resumed.step()
        resumed.save_checkpoint()
        resumed.run()
        assert resumed.get_metrics()["losses/log_temperature"] == 0.0


class Costly(prl.PPO):
    """Has a second value function, of costs, with a field of its own."""

    def make_networks(self) -> Any:
        self.cost = self.actor.make("cost", prl.heads.StateValue(), acts=True)
        return *super().make_networks(), self.cost

    def value_functions(self) -> Any:
        return {**super().value_functions(), "CostValue": self.cost}


@pytest.mark.parametrize("shared_body", [False, True])
def test_values_of_a_users_value_function_are_stored_with_any_actor(shared_body: bool) -> None:
    actor = prl.OnPolicyActor.create_factory(hidden_sizes=(8,), shared_body=shared_body)
    scheme = own_parts.composed(Costly.create_factory(), actor, prl.GAEBuffer.create_factory(size=4))
    scheme.collect(8)
    scheme.storage.before_gradients()
    (batch,) = scheme.storage.generate_batches(1)
    view = scheme.actor.view(batch[OBS])
    for field, network in scheme.algorithm.value_functions().items():
        torch.testing.assert_close(batch[field], network(view), check_stride=False)
    scheme.close()
