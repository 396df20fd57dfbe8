"""Export of the policy network to ONNX or ``torch.export`` files."""

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.envs.spaces import EnvActions
from pytorchrl.agent.explorers import Exploration, best_action
from storages.persistent.log.files import write_atomically

_ROWS = 2
"""Batch size of the example inputs; torch would specialise on a batch size of 1."""
_MOST_BYTES_OF_ONE_FILE = 2**30
"""Half of the most that an ONNX file may have, which has the graph, too."""
_EXPORTS_ALL = "torch 2.13"
"""The oldest version with which every policy is exported by the tests."""


class ActingNetwork(nn.Module):
    """The deterministic policy as a module, from observations to the environment's actions.

    Args:
        algorithm: has the trained actor.
    """

    def __init__(self, algorithm: Algorithm) -> None:
        super().__init__()
        self.actor = algorithm.actor
        self.algorithm = algorithm
        space = algorithm.actor.observation_space
        self._names = list(space.spaces) if isinstance(space, spaces.Dict) else None
        self._exploration = Exploration(algorithm.codec, _ROWS, algorithm.device, seed=0, deterministic=True)
        # A file cannot hold a generator: torch, or the ONNX runtime, draws from its own.
        self._exploration.generator = None  # type: ignore[assignment]
        self._in_env = EnvActions(algorithm.actor.action_space)

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Return the actions for observations.

        Args:
            *inputs: observations (B, *obs), or the parts of a dict in their order; at last the recurrent states (B,
                hidden) of a recurrent actor.

        Returns:
            Actions (B, *action), (B, 1) of a Discrete space, and the next recurrent states of a recurrent actor.
        """
        parts = inputs if self.actor.memory is None else inputs[:-1]
        obs: Any = parts[0] if self._names is None else dict(zip(self._names, parts, strict=True))
        # Not a constant of the exported network: a policy may draw as many actions as there are rows.
        self._exploration.num_envs = inputs[0].shape[0]
        if self.actor.memory is None:
            return self._actions(self.actor.view(obs))
        # Callers pass zero states where an episode begins.
        view = self.actor.view(obs, inputs[-1], torch.zeros_like(inputs[-1][:, :1]))
        actions, states = self._actions(view), view.rhs_after()
        assert states is not None
        return actions, states

    def _actions(self, view: Any) -> Tensor:
        algorithm = self.algorithm
        action = algorithm.codec.to_env(best_action(algorithm.policy(view, self._exploration)))
        return self._in_env.of_tensors(action).view_as(action)


def export_policy(algorithm: Algorithm, path: Path) -> Path:
    """Write the policy network; see :meth:`TrainedPolicy.export`."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file in it that ends in .onnx or .pt2")
    if path.suffix not in (".onnx", ".pt2"):
        raise ValueError(f"a policy is exported to a file that ends in .onnx or .pt2, got {path}")
    if path.suffix == ".onnx":
        for package in ("onnx", "onnxscript"):
            if find_spec(package) is None:
                raise ImportError(f"writing {path} needs the package {package}: pip install onnx onnxscript")
    if algorithm.keeps_acting_state:
        raise ValueError(
            f"{type(algorithm).__name__} chooses actions by what it keeps of earlier steps, which an exported network "
            f"does not; use the policy of load_policy"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        _write(algorithm, path)
    except RuntimeError as error:
        raise RuntimeError(
            f"torch {torch.__version__} cannot export this policy of {type(algorithm).__name__} to {path}: "
            f"{str(error).partition(chr(10))[0]} A later version may: {_EXPORTS_ALL} exports every policy"
        ) from error
    return path


def _write(algorithm: Algorithm, path: Path) -> None:
    network = ActingNetwork(algorithm)
    in_training = [module for module in network.modules() if module.training]
    network.eval()
    try:
        _write_network(network, path)
    finally:
        # The run may go on.
        for module in in_training:
            module.training = True


def _write_network(network: ActingNetwork, path: Path) -> None:
    algorithm = network.algorithm
    inputs, names = _inputs(algorithm)
    # Torch 2.6 refuses a number of rows without a bound.
    rows = torch.export.Dim("rows", max=2**31 - 1)
    shapes = {"inputs": tuple({0: rows} for _ in inputs)}
    with torch.no_grad():
        program = torch.export.export(network, inputs, dynamic_shapes=shapes, strict=False)
        # Parameters may be views into one flat tensor of an optimiser; the file must contain each separately.
        for name, parameter in program.state_dict.items():
            program.state_dict[name] = nn.Parameter(parameter.clone(), parameter.requires_grad)
        if path.suffix == ".pt2":
            # Not by torch, whose errors do not tell a full disk from a policy that it cannot export.
            content = io.BytesIO()
            torch.export.save(program, content)
            write_atomically(path, content.getvalue())
        else:
            outputs = ["action"] if algorithm.actor.memory is None else ["action", "states_after"]
            with _without_notes_of_the_exporter():
                torch.onnx.export(
                    program,
                    (),
                    str(path),
                    input_names=names,
                    output_names=outputs,
                    dynamo=True,
                    # One file, unless it would be larger than the format allows.
                    external_data=_bytes_of(network) > _MOST_BYTES_OF_ONE_FILE,
                    verbose=False,
                )


@contextmanager
def _without_notes_of_the_exporter() -> Iterator[None]:
    """Hide torch's notes on its own internals, such as operators of packages that no policy uses."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _bytes_of(network: nn.Module) -> int:
    return sum(each.numel() * each.element_size() for each in (*network.parameters(), *network.buffers()))


def _inputs(algorithm: Algorithm) -> tuple[tuple[Tensor, ...], list[str]]:
    """Return example inputs with the right shapes and dtypes, and their names."""
    space = algorithm.actor.observation_space
    parts = space.spaces if isinstance(space, spaces.Dict) else {"observation": space}
    inputs = [
        torch.zeros((_ROWS, *(part.shape or (1,))), dtype=_dtype(part), device=algorithm.device)
        for part in parts.values()
    ]
    names = [str(name) for name in parts]
    states = algorithm.actor.initial_memory(_ROWS)
    if states is not None:
        inputs.append(states)
        names.append("states")
    return tuple(inputs), names


def _dtype(space: Any) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, str(space.dtype))
    return dtype
