"""Initialise a run from another one: from offline to online training, or from another algorithm."""

import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pytorchrl.experiments.runs import checkpoint
from pytorchrl.experiments.runs.checkpoint import CheckpointError
from pytorchrl.experiments.runs.composition import as_checkpoint_error, check_action_bounds, check_action_names
from pytorchrl.experiments.runs.run_folder import file_of
from pytorchrl.scheme.scheme import Scheme

_NETWORKS, _NORMALIZATION = "networks", "normalization"
_OF_STEPS = "steps"


def start_from(scheme: Scheme, run: str | os.PathLike[str]) -> list[str]:
    """Initialise the networks of a new scheme from another run.

    From a run of the same algorithm with networks of the same shapes, the complete training state is loaded: weights,
    target networks, optimisers, dual variables such as temperatures, and the normalisation statistics of observations.
    From another algorithm, or a file of weights, only networks with the same name and shapes, such as "policy", and the
    statistics are loaded; target networks are initialised as copies. Steps, schedules, storages, random generators and
    all hyper-parameters, also those that the other run changed, are those of the new run. When it is resumed, the other
    run is not read again.

    Args:
        scheme: of the new run.
        run: a run folder, whose newest checkpoint is read, or a file of weights such as ``best_weights.pt``.

    Returns:
        The names of the networks that were loaded.

    Raises:
        CheckpointError: there is no checkpoint, it is damaged, none of its networks fits, or actions had other bounds
            or names.
        RuntimeError: the scheme has already made steps or updates.
    """
    if scheme.steps or scheme.algorithm.updates:
        raise RuntimeError(
            f"start_from: the scheme has made {scheme.steps:,} {scheme.unit} already; make a new one, or "
            f"continue its run by Learner.resume"
        )
    file = file_of(run)
    state = checkpoint.load(file, checkpoint.READING, is_mapped=True)
    with as_checkpoint_error(file):
        config = state["config"]
        check_action_bounds(config, scheme.actor.action_space, file)
        check_action_names(config, scheme.action_names, "the data of the new run", file)
        saved = {"actor": state["weights"]} if "weights" in state else state["scheme"]["algorithm"]
        is_same = config["algorithm"]["name"] == type(scheme.algorithm).__name__
        taken = _take_all(scheme, saved) if is_same else []
        taken = taken or _take_networks(scheme, saved["actor"])
        if not taken:
            raise CheckpointError(
                f"{file} is of {config['algorithm']['name']}, and none of its networks "
                f"({', '.join(_networks(saved['actor'])) or 'it has none'}) has the name and the shapes of one of "
                f"{type(scheme.algorithm).__name__} ({', '.join(_networks(scheme.actor.state_dict()))}); give the "
                f"actor the same hidden_sizes, body, feature_extractor and memory"
            )
        steps = state["steps"] if "weights" in state else state["scheme"]["collector"]["steps"]
    scheme.config["started_from"] = {
        "run": os.fspath(run),
        "algorithm": config["algorithm"]["name"],
        "steps": steps,
        "networks": taken,
    }
    return taken


def _take_all(scheme: Scheme, saved: Mapping[str, Any]) -> list[str]:
    """Load the training state of a run of the same algorithm; change nothing if shapes or parts differ."""
    algorithm, actor = scheme.algorithm, scheme.actor.state_dict()
    training = saved.get("training")
    if training is None or _shapes(actor) != _shapes(saved["actor"]):
        return []
    before = algorithm.training.state_dict()
    if any(training[kind].keys() != parts.keys() for kind, parts in before.items()):
        return []
    algorithm.training.load_state_dict(training)
    if _OF_STEPS in algorithm.training.counters:
        # The new run counts its own environment transitions.
        algorithm.training.counters[_OF_STEPS] = 0
    algorithm.actor.load_state_dict(saved["actor"])
    # Not the learning rates of the other run, which its optimisers saved.
    algorithm.set_progress(algorithm.steps, algorithm.target_steps)
    return list(_networks(actor))


def _take_networks(scheme: Scheme, weights: Mapping[str, Tensor]) -> list[str]:
    """Copy the networks that have the same name and shapes; returns their names."""
    ours, theirs = _networks(scheme.actor.state_dict()), _networks(weights)
    fitting = [name for name, tensors in ours.items() if _shapes(tensors) == _shapes(theirs.get(name, {}))]
    if not fitting:
        return []
    taken = [*fitting, _NORMALIZATION]
    parts = {name: _part(weights, name) for name in taken}
    with torch.no_grad():
        for key, tensor in scheme.actor.state_dict().items():
            name = _name_of(key)
            if name in taken and key in parts[name] and parts[name][key].shape == tensor.shape:
                tensor.copy_(parts[name][key])
    for target in scheme.algorithm.training.targets.values():
        target.update(0.0)
    return fitting


def _networks(weights: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Return the weights of each network, by its name."""
    names = dict.fromkeys(_name_of(key) for key in weights if key.startswith(f"{_NETWORKS}."))
    return {name: _part(weights, name) for name in names}


def _part(weights: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    return {key: tensor for key, tensor in weights.items() if _name_of(key) == name}


def _name_of(key: str) -> str:
    first, _, rest = key.partition(".")
    return rest.partition(".")[0] if first == _NETWORKS else first


def _shapes(weights: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {key: tensor.shape for key, tensor in weights.items()}
