"""Whoever changes a network or a loss of any algorithm gets what torch promises.

Layers are frozen, parameters and modules hooked, layers normalised, networks of other classes made, and losses scaled,
extended, combined and differentiated, as any user of torch does.
"""

import copy
import functools
import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pytorchrl as prl
from pytorchrl.agent.actors.layers.mlp import MLP
from pytorchrl.agent.actors.network import Ensemble, Network
from pytorchrl.agent.ops.products import is_linear
from tests.support.lessons import (
    CASES,
    Case,
    Lesson,
    collect,
    difference,
    learn,
    lesson,
    make_scheme,
    owners,
    parameters,
)

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook")

each_case = pytest.mark.parametrize("case", CASES, ids=str)
"""All algorithms, with actions of each kind that they support."""


def with_losses(case: Case) -> Lesson:
    """The lesson of a case that learns from `losses`; others are skipped."""
    made = lesson(case)
    if not made.batches:
        pytest.skip(f"{case.algorithm.__name__} learns without calling losses")
    return made


def test_the_cases_are_of_every_exported_algorithm() -> None:
    exported = {
        cls
        for name in prl.__all__
        if isinstance(cls := getattr(prl, name), type)
        and issubclass(cls, prl.Algorithm)
        and not cls.__abstractmethods__
    }
    assert {cls.__name__ for cls in exported} <= {case.algorithm.__name__ for case in CASES}


# Frozen parameters


@pytest.mark.quick_share(0.2, long=0.5)
@each_case
def test_frozen_parameters_stay_to_the_bit_while_others_learn(case: Case) -> None:
    with make_scheme(case) as scheme:
        trained = parameters(scheme.algorithm)
        frozen = dict(itertools.islice(trained.items(), 0, None, 2))
        for parameter in frozen.values():
            parameter.requires_grad_(False)
        before = copies(trained)
        learn(scheme)
        moved = moved_since(before, trained)
        assert sorted(moved & frozen.keys()) == []
        assert moved


# Hooks


@pytest.mark.quick_share(0.2, long=0.5)
@each_case
def test_a_hook_on_each_parameter_is_called_and_can_stop_it(case: Case) -> None:
    with make_scheme(case) as scheme:
        trained = parameters(scheme.algorithm)
        called = hooked(trained, lambda gradient: None)
        before = copies(trained)
        learn(scheme)
        # No loss reaches the others.
        assert sorted(moved_since(before, trained) - called) == []
        assert called
    with make_scheme(case) as scheme:
        trained = parameters(scheme.algorithm)
        # With a graph, which natural gradients differentiate again.
        hooked(trained, lambda gradient: 0 * gradient)
        before = copies(trained)
        learn(scheme)
        assert sorted(moved_since(before, trained)) == []


def hooked(trained: dict[str, nn.Parameter], hook: Callable[[Tensor], Tensor | None]) -> set[str]:
    """Hook each parameter; the names of those whose hooks were called are added to the set."""
    called: set[str] = set()

    def named(name: str) -> Callable[[Tensor], Tensor | None]:
        def call(gradient: Tensor) -> Tensor | None:
            called.add(name)
            return hook(gradient)

        return call

    for name, parameter in trained.items():
        parameter.register_hook(named(name))
    return called


def is_number(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


Hook = Callable[[nn.Module, Callable[[], None]], Any]


def forward_hook(module: nn.Module, note: Callable[[], None]) -> None:
    def hook(module: nn.Module, inputs: Any, output: Any) -> Any:
        note()
        return output * 1.5 if is_number(output) else None

    module.register_forward_hook(hook)


def forward_pre_hook(module: nn.Module, note: Callable[[], None]) -> None:
    def hook(module: nn.Module, inputs: Any) -> Any:
        note()
        return (inputs[0] * 1.5, *inputs[1:]) if inputs and is_number(inputs[0]) else None

    module.register_forward_pre_hook(hook)


def full_backward_hook(module: nn.Module, note: Callable[[], None]) -> None:
    def hook(module: nn.Module, inputs: Any, outputs: Any) -> Any:
        note()
        return tuple(None if each is None else each * 1.5 for each in inputs)

    module.register_full_backward_hook(hook)


@pytest.mark.quick_share(0.1, long=0.4)
@each_case
@pytest.mark.parametrize("hook", [forward_hook, forward_pre_hook, full_backward_hook])
def test_hooks_on_modules_run_in_learning_and_change_its_gradients(case: Case, hook: Hook) -> None:
    if lesson(case).batches:
        plain, changed = lesson(case).twin(), lesson(case).twin()
        expected = lesson(case).gradients(plain)
        reached = {name for name, gradient in expected.items() if gradient.any()}
        hook_of, called = hookable(changed, reached, hook), set()
        for module in set(hook_of.values()):
            hook(module, functools.partial(note, module, called))
        different = difference(lesson(case).gradients(changed), expected)
    else:
        plain_scheme, scheme = make_scheme(case), make_scheme(case)
        collect(plain_scheme)
        collect(scheme)
        before = copies(parameters(plain_scheme.algorithm))
        update(plain_scheme)
        expected = copies(parameters(plain_scheme.algorithm))
        reached = difference(before, expected)
        hook_of, called = hookable(scheme.algorithm, reached, hook), set()
        for module in set(hook_of.values()):
            hook(module, functools.partial(note, module, called))
        update(scheme)
        different = difference(expected, parameters(scheme.algorithm))
        plain_scheme.close()
        scheme.close()
    assert sorted(name for name, module in hook_of.items() if id(module) not in called) == []
    if hook is full_backward_hook:
        # What a module's input depends on; that of a first layer depends on nothing trained.
        assert different or not hook_of
    else:
        assert sorted(groups_of_layers(hook_of) - groups_of(different)) == []


def hookable(algorithm: prl.Algorithm, reached: set[str], hook: Hook) -> dict[str, nn.Module]:
    """The modules to hook, by their parameters; torch calls backward hooks only where outputs are tensors."""
    found = owners(algorithm, reached)
    if hook is full_backward_hook:
        return {name: module for name, module in found.items() if isinstance(module, nn.Linear)}
    return found


def note(module: nn.Module, called: set[int]) -> None:
    if torch.is_grad_enabled() or torch._C._current_graph_task_id() != -1:
        called.add(id(module))


def groups_of_layers(modules: dict[str, nn.Module]) -> set[str]:
    """The groups with linear layers, which the hooks change."""
    return groups_of(name for name, module in modules.items() if isinstance(module, nn.Linear))


def groups_of(names: Iterable[str]) -> set[str]:
    """The groups of parameters, which their names begin with."""
    return {name.partition(".")[0] for name in names}


def update(scheme: prl.Scheme) -> None:
    for _ in scheme.update():
        pass


# Other networks


class ScaledNetwork(Network):
    """A network of a user, whose layers after the body get other inputs."""

    scale = 1.0

    def forward(self, view: Any, action: Any = None) -> Any:
        features = self.inputs(view, action) * self.scale
        if self.joint is not None:
            features = self.joint(features)
        return self.head(features)


class ScaledMLP(MLP):
    """Hidden layers of a user."""

    scale = 1.0

    def forward(self, features: Tensor) -> Tensor:
        return super().forward(features) * self.scale


def with_scaled_networks(cls: type[prl.Actor]) -> type[prl.Actor]:
    class Scaled(cls):  # type: ignore[misc, valid-type]
        def make(self, *arguments: Any, **options: Any) -> Network:
            return as_scaled(super().make(*arguments, **options))

        def make_ensemble(self, *arguments: Any, **options: Any) -> Ensemble:
            ensemble = super().make_ensemble(*arguments, **options)
            for network in ensemble:
                as_scaled(network)
            return ensemble

    return Scaled


def as_scaled(network: Network) -> Network:
    network.__class__ = ScaledNetwork
    return network


def with_scaled_layers(cls: type[prl.Actor]) -> type[prl.Actor]:
    class Scaled(cls):  # type: ignore[misc, valid-type]
        def hidden_layers(self, *arguments: Any, **options: Any) -> MLP:
            layers = super().hidden_layers(*arguments, **options)
            layers.__class__ = ScaledMLP
            return layers

    return Scaled


@pytest.mark.quick_share(0.1, long=0.4)
@each_case
@pytest.mark.parametrize(
    ("change", "kind"),
    [(with_scaled_networks, ScaledNetwork), (with_scaled_layers, ScaledMLP)],
    ids=["Network", "MLP"],
)
def test_networks_and_layers_of_other_classes_learn_as_they_act(
    case: Case, change: Callable[[type[prl.Actor]], type[prl.Actor]], kind: type[nn.Module]
) -> None:
    given = with_losses(case)
    algorithm = given.twin(actor=change)
    scaled = [module for module in algorithm.actor.modules() if isinstance(module, kind)]
    reached = {id(parameter) for module in scaled for parameter in module.parameters()}
    trained = parameters(algorithm)
    alike, plain = given.gradients(algorithm), given.gradients(given.twin())
    groups = groups_of(name for name in alike if id(trained[name]) in reached and alike[name].any())
    if not groups:
        pytest.skip(f"{case.algorithm.__name__} makes no such module of these actions")
    for name in alike.keys() | plain.keys():
        torch.testing.assert_close(alike[name], plain[name], rtol=1e-4, atol=1e-6)
    # As the update sees them, also where it made something of them before.
    for module in scaled:
        module.scale = 1.5  # type: ignore[assignment]
    given.restore(algorithm)
    before, _ = loss_values(given, given.twin()), given.restore(algorithm)
    assert loss_values(given, algorithm) != before
    given.restore(algorithm)
    different = difference(given.gradients(algorithm), plain)
    assert sorted(groups - groups_of(different)) == []


def loss_values(given: Lesson, algorithm: prl.Algorithm) -> dict[str, float]:
    return {
        group.name: float(loss.detach()) for losses in given.all_losses(algorithm) for group, loss in losses.of.items()
    }


@pytest.mark.quick_share(0.1, long=0.4)
@each_case
@pytest.mark.parametrize(
    "normalise",
    [torch.nn.utils.spectral_norm, torch.nn.utils.parametrizations.spectral_norm],
    ids=["hook", "parametrization"],
)
def test_losses_are_of_the_values_of_layers_that_are_normalised_after_building(
    case: Case, normalise: Callable[[nn.Module], nn.Module]
) -> None:
    given = with_losses(case)
    algorithm, plain = given.twin(), given.twin()
    pairs = list(zip(linear_layers(algorithm), linear_layers(plain), strict=True))
    # Weights of zeros, of predictions that begin at 0, cannot be divided by their norm.
    pairs = [(ours, theirs) for ours, theirs in pairs if ours.weight.any()]
    with torch.random.fork_rng():
        # Norms are estimated from vectors that torch's global generator draws.
        torch.manual_seed(4)
        for ours, _ in pairs:
            normalise(ours)
    for each in (algorithm, plain):
        # A layer in training estimates its norm anew at each call.
        each.actor.eval()
    generators = plain.random_state()
    with torch.no_grad():
        for ours, theirs in pairs:
            ours(torch.zeros(1, ours.in_features))
            theirs.weight.copy_(ours.weight)
    algorithm.load_random_state(generators)
    assert loss_values(given, algorithm) == pytest.approx(loss_values(given, plain), rel=1e-4, abs=1e-6)
    # A line search compares outputs of calls, which a norm that is estimated anew at each call changes.
    algorithm.actor.train("minimise" not in algorithm.unused)
    before = copies(parameters(algorithm))
    algorithm.update(copy.deepcopy(given.batches[0]))
    assert moved_since(before, parameters(algorithm))


def linear_layers(algorithm: prl.Algorithm) -> list[Any]:
    """The trained linear layers, without those whose weights a `torch.nn.MultiheadAttention` reads itself."""
    return [module for module in dict.fromkeys(owners(algorithm, parameters(algorithm)).values()) if is_linear(module)]


# Other losses


def scaled(losses: prl.Losses | None) -> prl.Losses | None:
    return losses and replace(losses, of={group: 10 * loss for group, loss in losses.of.items()})


@pytest.mark.quick_share(0.2, long=0.5)
@each_case
def test_an_overridden_update_can_add_a_penalty_to_the_losses(case: Case) -> None:
    given = with_losses(case)
    expected = given.gradients(given.twin())

    def change(cls: type[prl.Algorithm]) -> type[prl.Algorithm]:
        class Penalised(cls):  # type: ignore[misc, valid-type]
            def update(self, batch: Any) -> prl.Result:
                losses = self.losses(self.read(batch))
                for group, loss in losses.of.items():
                    group.stepper.zero_grad()
                    penalties = [parameter.square().sum() for parameter in group.parameters.values()]
                    (loss + 0.5 * sum(penalties)).backward(retain_graph=True)
                    self.found = {**self.found, **group.gradients()}
                return prl.Result(losses.metrics, losses.errors)

        Penalised.found = {}
        return Penalised

    algorithm: Any = given.twin(change)
    algorithm.update(copy.deepcopy(given.batches[0]))
    assert algorithm.found
    for name, gradient in algorithm.found.items():
        parameter = parameters(algorithm)[name].detach()
        both = expected.get(name, torch.zeros_like(parameter)) + parameter
        torch.testing.assert_close(gradient, both, rtol=1e-3, atol=1e-5)


@pytest.mark.quick_share(0.2, long=0.5)
@each_case
def test_losses_of_two_batches_can_be_combined(case: Case) -> None:
    given, algorithm = with_losses(case), with_losses(case).twin()
    separate = [gradients_of(algorithm, given.losses(algorithm, position)) for position in (0, 1)]
    given.restore(algorithm)
    first, second = given.losses(algorithm, 0), given.losses(algorithm, 1)
    together = gradients_of(algorithm, first, second)
    assert together.keys() == separate[0].keys() | separate[1].keys()
    for name, gradient in together.items():
        apart = sum(each[name] for each in separate if name in each)
        torch.testing.assert_close(gradient, apart, rtol=1e-3, atol=1e-5)


def gradients_of(algorithm: prl.Algorithm, *several: prl.Losses) -> dict[str, Tensor]:
    """The gradients of the sum of losses, by `backward`."""
    zero(algorithm)
    sum_of(loss for losses in several for loss in losses.of.values()).backward()  # type: ignore[no-untyped-call]
    groups = {group for losses in several for group in losses.of}
    found = {name: gradient for group in groups for name, gradient in group.gradients().items()}
    zero(algorithm)
    return found


def sum_of(losses: Iterable[Tensor]) -> Tensor:
    return functools.reduce(torch.add, losses)


def zero(algorithm: prl.Algorithm) -> None:
    for group in algorithm.training.groups.values():
        group.stepper.zero_grad()


@pytest.mark.quick_share(0.2, long=0.5)
@each_case
def test_torch_differentiates_each_loss_as_learning_does(case: Case) -> None:
    given = with_losses(case)
    expected, algorithm = given.gradients(given.twin()), given.twin()
    # Those of losses are on the parameters from the last update, if its gradients were not removed.
    zero(algorithm)
    found: dict[str, Tensor] = {}
    for losses in given.all_losses(algorithm):
        for group, loss in losses.of.items():
            named = group.parameters.items()
            gradients = torch.autograd.grad(loss, [each for _, each in named], retain_graph=True, allow_unused=True)
            found |= {
                f"{group.name}.{name}": gradient
                for (name, _), gradient in zip(named, gradients, strict=True)
                if gradient is not None
            }
    assert found
    for name, parameter in parameters(algorithm).items():
        nothing = torch.zeros_like(parameter)
        torch.testing.assert_close(
            found.get(name, nothing), expected.get(name, nothing), rtol=1e-3, atol=1e-5, check_stride=False
        )


def copies(trained: dict[str, Any]) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in trained.items()}


def moved_since(before: dict[str, Tensor], trained: dict[str, nn.Parameter]) -> set[str]:
    """The names of the parameters that changed, also of those that torch's tools renamed."""
    return {name for name, parameter in trained.items() if not torch.equal(before[name], parameter)}
