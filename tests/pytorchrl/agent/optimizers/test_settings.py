"""Optimisers as hyper-parameters: compared, saved as plain data, checked when they are made."""

import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytorchrl.agent.optimizers import (
    LBFGS,
    SGD,
    Adam,
    AdamW,
    FlatParameters,
    FlatStepper,
    Optimizer,
    RMSprop,
    TorchOptimizer,
)

ALL = [
    Adam(eps=1),
    AdamW(betas=(0.8, 0.9)),
    RMSprop(momentum=0.5),
    SGD(momentum=0.9, nesterov=True),
    LBFGS(line_search="strong_wolfe"),
    TorchOptimizer("Adagrad", {"lr_decay": 0.1}),
    TorchOptimizer(torch.optim.RAdam),
]


@pytest.mark.parametrize("setting", ALL, ids=repr)
def test_an_optimiser_setting_is_recreated_from_its_plain_data(setting: Optimizer) -> None:
    config = json.loads(json.dumps(setting.config))
    assert config["name"] == type(setting).__name__
    assert type(setting)(**config["hyper_parameters"]) == setting
    assert pickle.loads(pickle.dumps(setting)) == setting


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Adam(betas=(0.9, 1.0)), r"Adam: betas must be two numbers in \[0, 1\), got \(0\.9, 1\.0\)"),
        (lambda: AdamW(betas=(0.9,)), "AdamW: betas must be two numbers"),  # type: ignore[arg-type]
        (lambda: Adam(betas=(0.9, 1.1)), "Adam: betas holds a value that"),
        (lambda: Adam(eps=0), "Adam: eps must be greater than 0, got 0"),
        (lambda: AdamW(weight_decay=-1), "AdamW: weight_decay must be at least 0, got -1"),
        (lambda: RMSprop(alpha=2), r"RMSprop: alpha must lie in \[0, 1\], got 2"),
        (lambda: SGD(nesterov=True), "SGD: nesterov needs a momentum"),
        (lambda: LBFGS(max_iter=0), "LBFGS: max_iter must be at least 1, got 0"),
        (lambda: LBFGS(line_search="armijo"), "LBFGS: line_search must be"),  # type: ignore[arg-type]
        (lambda: TorchOptimizer("Adagard"), "torch.optim has no optimiser 'Adagard'"),
        (lambda: TorchOptimizer("lr_scheduler"), "torch.optim has no optimiser 'lr_scheduler'"),
        (lambda: TorchOptimizer("SGD", {"lr": 1.0}), "lr is a hyper-parameter of the algorithm"),
    ],
)
def test_an_invalid_setting_is_refused_when_it_is_created(make: Callable[[], Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        make()


def test_a_torch_optimiser_given_by_name_or_by_class_is_the_same_setting() -> None:
    assert TorchOptimizer(torch.optim.Adagrad) == TorchOptimizer("Adagrad")
    assert TorchOptimizer("Adagrad") != TorchOptimizer("Adagrad", {"lr_decay": 0.1})


def test_a_setting_copies_its_arguments() -> None:
    arguments = {"lr_decay": 0.1}
    setting = TorchOptimizer("Adagrad", arguments)
    arguments["lr_decay"] = 0.2
    assert setting.arguments == {"lr_decay": 0.1}


@pytest.mark.parametrize("base", [Adam, AdamW, LBFGS, TorchOptimizer])
def test_an_update_rule_that_would_never_be_called_is_refused_when_its_class_is_made(base: Any) -> None:
    with pytest.raises(
        TypeError, match=rf"Own\.move would never be called: .* {base.__name__} .* ElementwiseOptimizer"
    ):

        class Own(base):
            def move(self, learning_rate: float, parameter: Any, gradient: Any, *averages: Any) -> None: ...


def test_an_update_rule_is_not_refused_where_it_may_be_called() -> None:
    class Halved(SGD):
        def move(self, learning_rate: float, parameter: Any, gradient: Any, *averages: Any) -> None:
            super().move(learning_rate / 2, parameter, gradient, *averages)

    class Made(Adam):
        def make(self, parameters: FlatParameters) -> FlatStepper:
            return Halved().make(parameters)

        def move(self) -> None: ...

    assert Made() == Made()
