"""Configuration files of ``train``: their syntax, apart from what they describe."""

import re
from pathlib import Path

import pytest

import pytorchrl as prl
from pytorchrl.commands.composition.described_run import described_run
from pytorchrl.commands.composition.description import read_yaml


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "algorithm: DQN\nenv: CartPole-v1\nsteps: 100\nsteps: 200\n",
            "the key 'steps' is in line 3 and again in line 4",
        ),
        (
            "algorithm:\n  name: DQN\n  lr: 1e-3\n  gamma: 0.9\n  lr: 1e-4\nenv: CartPole-v1\n",
            "the key 'lr' is in line 3 and again in line 5",
        ),
        ("algorithm: {name: DQN, 'lr': 1e-3, lr: 1e-4}\nenv: CartPole-v1\n", "the key 'lr' is in line 1"),
    ],
)
def test_a_key_that_a_configuration_file_has_twice_is_refused_with_its_lines(
    text: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(text)
    with pytest.raises(prl.CompositionError, match=re.escape(f"{file}: {message}")):
        described_run(["--config", str(file)])


def test_keys_that_a_configuration_file_merges_in_may_be_replaced(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("a: &a {lr: 1, gamma: 2}\nb: &b {<<: *a, lr: 3}\nc: {<<: *b, gamma: 4}\n")
    assert read_yaml(file) == {"a": {"lr": 1, "gamma": 2}, "b": {"lr": 3, "gamma": 2}, "c": {"lr": 3, "gamma": 4}}
