"""Export of the policy network to ONNX, ``torch.export`` or TorchScript files."""

import io
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.envs.spaces import compact, space_as_data
from pytorchrl.experiments.policies.acting_network import (
    ROWS,
    ActingNetwork,
    chosen_actions,
    example_inputs,
    input_names,
    input_sizes,
    output_names,
)
from pytorchrl.experiments.policies.onnx_file import BATCH, write_onnx
from pytorchrl.logging.groups import environment
from pytorchrl.version import VERSION
from storages.files import write_atomically

SUFFIXES = (".onnx", ".pt2", ".ts")
"""Of the files that a policy is exported to: ONNX, ``torch.export`` and TorchScript."""
METADATA = "metadata.json"
"""Name of the metadata within a ``.pt2`` or ``.ts`` file."""
_ENDINGS = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
_LATER = "A later version may: torch 2.13 exports every policy"
"""It is the oldest version with which the tests export every policy."""
_ROWS_OF_TRIAL = 32
_MOST_THAT_DIFFER = 0.1
"""Share of discrete choices: the values of two of them may be equal but for rounding."""
_TOLERANCE = 1e-2


def export_policy(
    algorithm: Algorithm,
    path: Path,
    action_names: Sequence[str] = (),
    action_wrappers: Sequence[str] = (),
    origin: Mapping[str, Any] | None = None,
) -> Path:
    """Write the policy network; see :meth:`TrainedPolicy.export`.

    Args:
        algorithm: has the policy.
        path: of the file.
        action_names: of discrete actions, in the order of their numbers.
        action_wrappers: those of the training that change actions.
        origin: as :func:`origin_of` returns it; None where it is not known.
    """
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file in it that ends in {_ENDINGS}")
    check_exportable(algorithm, path)
    if of_nan := nonfinite_weights(algorithm):
        raise ValueError(f"the policy is not exported to {path}: {of_nan}")
    path.parent.mkdir(parents=True, exist_ok=True)
    network, metadata = ActingNetwork(algorithm), metadata_of(algorithm, action_names, action_wrappers, origin)
    in_training = [module for module in network.modules() if module.training]
    network.eval()
    try:
        program = _traced(network, path)
        if path.suffix == ".ts":
            script = _as_torchscript(network)
            _refuse_other_actions(algorithm, program, script)
            _write_torchscript(script, metadata, path)
        else:
            _refuse_other_actions(algorithm, program, program.module())
            _write(program, algorithm, metadata, path)
    finally:
        # The run may go on.
        for module in in_training:
            module.training = True
    return path


def check_exportable(algorithm: Algorithm, path: Path) -> None:
    """Refuse a policy that no exported network can be, without trying it, or a file of another kind.

    Raises:
        ValueError: actions depend on more than observations and recurrent states, or the file has another suffix.
        ImportError: packages that write the file are not installed.
    """
    if path.suffix not in SUFFIXES:
        raise ValueError(f"a policy is exported to a file that ends in {_ENDINGS}, got {path}")
    if path.suffix == ".onnx":
        for package in ("onnx", "onnxscript"):
            if find_spec(package) is None:
                raise ImportError(f"writing {path} needs the package {package}: pip install onnx onnxscript")
    name = type(algorithm).__name__
    if algorithm.keeps_acting_state:
        raise ValueError(
            f"{name} chooses actions by what it keeps of earlier steps, which an exported network does not; use the "
            f"policy of load_policy"
        )
    if algorithm.reads_rewards:
        raise ValueError(
            f"{name} chooses actions by earlier rewards, which an exported network does not get; use the policy of "
            f"load_policy"
        )
    owner = _owner(algorithm, "acting_step")
    if not owner.__module__.startswith("pytorchrl."):
        raise ValueError(
            f"{owner.__name__} overrides acting_step, which an exported network does not call; override act or policy, "
            f"which it does, or use the policy of load_policy"
        )


def nonfinite_weights(algorithm: Algorithm) -> str:
    """Return what to say of weights with NaN or infinity, with which a policy takes actions that mean nothing.

    "" where all are finite.
    """
    for name, weights in algorithm.actor.named_parameters():
        if not bool(torch.isfinite(weights).all()):
            return (
                f"its weights {name!r} hold NaN or infinity, so that its actions mean nothing; training diverged, or "
                f"the file was changed. Take an earlier checkpoint, or best_weights.pt of the run"
            )
    return ""


def _owner(algorithm: Algorithm, method: str) -> type:
    return next(cls for cls in type(algorithm).__mro__ if method in vars(cls))


def _traced(network: ActingNetwork, path: Path) -> Any:
    """Return the network as torch traces it.

    Raises:
        RuntimeError: torch cannot trace it.
        ValueError: its actions depend on earlier steps.
    """
    algorithm = network.algorithm
    inputs = example_inputs(algorithm, ROWS)
    # Torch 2.6 refuses a number of rows without a bound.
    rows = torch.export.Dim(BATCH, max=2**31 - 1)
    shapes = {"inputs": tuple({0: rows} for _ in inputs)}
    try:
        with torch.no_grad():
            program = torch.export.export(network, inputs, dynamic_shapes=shapes, strict=False)
    except Exception as error:  # of code of the user's, too, which is traced
        raise _unsupported(algorithm, path, error, _way_out(algorithm)) from error
    if network.keeps_state:
        raise ValueError(
            f"{type(algorithm).__name__} keeps what its actions depend on from one step to the next in "
            f"Exploration.state, which an exported network does not; use the policy of load_policy"
        )
    _drop_unused(program)
    for node in program.graph.nodes:
        # Lines of this machine's files, which no runtime needs.
        node.meta.pop("stack_trace", None)
    # Parameters may be views into one flat tensor of an optimiser; the file must contain each separately.
    for name, parameter in program.state_dict.items():
        program.state_dict[name] = nn.Parameter(parameter.clone(), parameter.requires_grad)
    return program


def _drop_unused(program: Any) -> None:
    """Remove the weights of networks that do not act, such as critics, from a traced network."""
    signature, graph = program.graph_signature, program.graph
    weights = signature.inputs_to_parameters | signature.inputs_to_buffers
    unused = {node.name: node for node in graph.nodes if node.op == "placeholder" and not node.users}
    unused = {name: node for name, node in unused.items() if name in weights}
    for node in unused.values():
        graph.erase_node(node)
    kept = [spec for spec in signature.input_specs if getattr(spec.arg, "name", None) not in unused]
    signature.input_specs[:] = kept
    for name in {weights[name] for name in unused}:
        program.state_dict.pop(name, None)
        program.constants.pop(name, None)
    program.graph_module.recompile()


def _way_out(algorithm: Algorithm) -> str:
    own = [name for name in ("act", "policy") if not _owner(algorithm, name).__module__.startswith("pytorchrl.")]
    # Such as a feature extractor or a memory of the user's.
    classes = dict.fromkeys(type(module) for module in algorithm.actor.networks.modules())
    own += [cls.__name__ for cls in classes if cls.__module__.partition(".")[0] not in ("pytorchrl", "torch")]
    if own:
        return (
            f"Its {' and '.join(own)} must compute actions by torch alone, for all rows at once: without numbers that "
            f"are read from tensors, as by `if tensor` or item(), and without len(tensor), which is tensor.shape[0]"
        )
    return _LATER


def _as_torchscript(network: ActingNetwork) -> Any:
    """Return the network as a TorchScript module without the networks that do not act.

    `torch.export` has traced it before, which refuses what a trace of TorchScript takes for a constant.
    """
    inputs = example_inputs(network.algorithm, ROWS)
    # Torch keeps TorchScript, but recommends `torch.export` whenever it is used.
    with warnings.catch_warnings(action="ignore"), torch.no_grad():
        return torch.jit.freeze(torch.jit.trace(network, inputs, check_trace=False))  # type: ignore[no-untyped-call]


def _refuse_other_actions(algorithm: Algorithm, program: Any, exported: Any) -> None:
    """Refuse a network that does not act as the policy does, in observations of the space.

    Args:
        algorithm: has the policy.
        program: the network as `torch.export` traces it, which tells whether it draws random numbers.
        exported: computes what is written to the file.

    Raises:
        ValueError: it chooses other actions.
    """
    if any(torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) for node in program.graph.nodes):
        return
    inputs = example_inputs(algorithm, _ROWS_OF_TRIAL)
    with torch.no_grad():
        found = exported(*inputs)
    actions = (found if isinstance(found, torch.Tensor) else found[0]).cpu().numpy().reshape(_ROWS_OF_TRIAL, -1)
    expected = chosen_actions(algorithm, inputs)
    if np.issubdtype(actions.dtype, np.floating):
        scale = np.abs(expected).max() + 1.0
        differ = ~np.isclose(actions, expected, rtol=_TOLERANCE, atol=_TOLERANCE * scale, equal_nan=True)
    else:
        differ = actions != expected
    if differ.any(1).mean() > _MOST_THAT_DIFFER:
        raise ValueError(
            f"the network that torch traces of {type(algorithm).__name__} acts otherwise than the policy in "
            f"{int(differ.any(1).sum())} of {_ROWS_OF_TRIAL} observations of its space; its act and policy must depend "
            f"on observations and weights alone, not on numbers that they keep or read elsewhere"
        )


def _write(program: Any, algorithm: Algorithm, metadata: Mapping[str, Any], path: Path) -> None:
    if path.suffix == ".pt2":
        # Not by torch, whose errors do not tell a full disk from a policy that it cannot export.
        content = io.BytesIO()
        torch.export.save(program, content, extra_files={METADATA: json.dumps(metadata)})
        write_atomically(path, content.getvalue())
        return
    try:
        write_onnx(program, path, input_names(algorithm), output_names(algorithm), _as_texts(metadata))
    except RuntimeError as error:
        raise _unsupported(algorithm, path, error, _LATER) from error


def _write_torchscript(script: Any, metadata: Mapping[str, Any], path: Path) -> None:
    content, extra = io.BytesIO(), {METADATA: json.dumps(metadata)}
    with warnings.catch_warnings(action="ignore"):
        torch.jit.save(script, content, _extra_files=extra)
    write_atomically(path, _without_source_lines(content))


def _without_source_lines(script: io.BytesIO) -> bytes:
    """Return a TorchScript file without the lines of this machine's files that it was traced from, and their paths.

    Errors of the network show them in Python; a file without them is read like any other.
    """
    script.seek(0)
    reader, content = torch._C.PyTorchFileReader(script), io.BytesIO()
    writer = torch._C.PyTorchFileWriter(content)
    for name in reader.get_all_records():
        # The writer adds the version, and the identifier, by itself.
        if name != "version" and not name.startswith(".data/") and not name.endswith(".debug_pkl"):
            record = reader.get_record(name)
            writer.write_record(name, record, len(record))
    writer.set_min_version(int(reader.get_record("version")))
    writer.write_end_of_file()
    return content.getvalue()


def _unsupported(algorithm: Algorithm, path: Path, error: Exception, way_out: str) -> RuntimeError:
    return RuntimeError(
        f"torch {torch.__version__} cannot export this policy of {type(algorithm).__name__} to {path}: "
        f"{str(error).partition(chr(10))[0]} {way_out}"
    )


_MOST_NUMBERS = 1_000
"""Of a part of the observation whose shift and scale are written."""


def origin_of(config: Mapping[str, Any], steps: int, numbers: Mapping[str, float]) -> dict[str, Any]:
    """Return which run a policy is from, and after how many steps, as plain data.

    Args:
        config: of the run.
        steps: of its training.
        numbers: that were saved with the policy, such as its return.
    """
    return {"environment": environment(config), "seed": config.get("seed"), "steps": steps, **numbers}


def metadata_of(
    algorithm: Algorithm,
    action_names: Sequence[str] = (),
    action_wrappers: Sequence[str] = (),
    origin: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the metadata of an exported policy by name, as plain data that JSON can hold."""
    described = {
        "observation_space": compact(space_as_data(algorithm.actor.observation_space)),
        "action_space": compact(space_as_data(algorithm.action_space)),
        **({"action_names": list(action_names)} if action_names else {}),
        "action_wrappers": list(action_wrappers),
        "normalisation": _normalisation(algorithm),
        "inputs": input_names(algorithm),
        "input_sizes": input_sizes(algorithm),
        "outputs": output_names(algorithm),
        "states": _states(algorithm),
        "origin": dict(origin or {}),
    }
    of_all = {"pytorchrl_version": VERSION, "algorithm": type(algorithm).__name__}
    return of_all | {name: _finite(value) for name, value in described.items()}


def _as_texts(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return metadata with texts alone, which ONNX files hold: values other than texts as JSON."""
    return {
        name: value if isinstance(value, str) else json.dumps(value, allow_nan=False)
        for name, value in metadata.items()
    }


def _normalisation(algorithm: Algorithm) -> dict[str, Any]:
    """Return shift, scale and bound of each normalised part of the observation, by its name."""
    normalization = algorithm.actor.normalization
    if normalization is None:
        return {}
    by_part: dict[str, Any] = {}
    for name, (shift, scale) in zip(normalization.names, normalization.scaling, strict=True):
        by_part[name or "observation"] = {"largest": normalization.largest}
        if shift.numel() <= _MOST_NUMBERS:
            by_part[name or "observation"] |= {"shift": shift.tolist(), "scale": scale.tolist()}
    return by_part


def _states(algorithm: Algorithm) -> dict[str, Any]:
    states = algorithm.actor.initial_memory(1)
    return {} if states is None else {"size": states.shape[1], "where_an_episode_begins": 0.0}


def _finite(value: Any) -> Any:
    """Return plain data with "inf" and "-inf" in place of infinities, which JSON lacks."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
