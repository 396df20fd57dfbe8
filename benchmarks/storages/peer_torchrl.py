"""torchrl: storages of tensors in tensordicts, trees in C++; n-step returns are summed when steps are inserted."""

import logging
import sys
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import cpp_extension

from benchmarks.storages.replay_content import GAMMA, Content, Rollout
from benchmarks.storages.replay_ours import (
    ALPHA,
    BETA,
    GAE_LAMBDA,
    Library,
    Sampling,
    Tensors,
    Work,
    error_batches,
    first_errors,
)


def _load_trees() -> tuple[bool, str]:
    """Make its C++ extension loadable before torchrl is imported; return whether that succeeded, and a remark.

    A wheel that was built for another torch contains the sources too; building them takes half a minute, once.
    """
    spec = find_spec("torchrl")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'torchrl'")
    folder = Path(spec.origin).parent
    try:
        torch.ops.load_library(str(next(folder.glob("_torchrl*.so"))))
    except (StopIteration, OSError):
        does_not_load = f"torchrl's C++ part does not load beside torch {torch.__version__}"
    else:
        return True, ""
    sources = folder / "csrc"
    try:
        sys.modules["torchrl._torchrl"] = cpp_extension.load(
            "_torchrl",
            [str(sources / name) for name in ("pybind.cpp", "utils.cpp")],
            extra_cflags=["-O3"],
            extra_include_paths=[str(sources)],
        )
    except Exception as error:  # Without a compiler, ninja or sources, only its trees are missing.
        reason = str(error).strip().partition("\n")[0]
        return False, f"{does_not_load}, nor could it be built here, so its prioritised replay is left out: {reason}"
    return True, f"{does_not_load}; it was built here from the sources that its wheel holds."


HAS_TREES, REMARK = _load_trees()

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, PrioritizedSampler, ReplayBuffer
    from torchrl.envs.transforms import MultiStepTransform
    from torchrl.objectives.value.functional import vec_generalized_advantage_estimate
logging.getLogger("torchrl").setLevel(logging.WARNING)


class _Peer:
    name = "torchrl"

    def uniform(self, content: Content, batch_size: int) -> Sampling:
        buffer = self._filled(self._buffer(content.transitions, batch_size), content, self._flat)
        return lambda: _from_tensordict(buffer.sample())

    def n_step(self, content: Content, batch_size: int, n: int) -> Sampling:
        buffer = self._buffer(content.transitions, batch_size)
        buffer.append_transform(MultiStepTransform(n, GAMMA))
        self._filled(buffer, content, self._nested)

        def call() -> Tensors:
            batch = buffer.sample()
            following = batch["next"]
            rewards, ends = following["reward"], following["terminated"]
            return batch["observation"], batch["action"], rewards, following["observation"], ends

        return call

    def prioritized(self, content: Content, batch_size: int) -> Sampling | None:
        if not HAS_TREES:
            return None
        sampler = PrioritizedSampler(content.transitions, ALPHA, BETA)
        buffer = self._filled(self._buffer(content.transitions, batch_size, sampler), content, self._flat)
        buffer.update_priority(torch.arange(content.transitions), first_errors(content.transitions))
        errors = error_batches(batch_size)

        def call() -> Tensors:
            batch, info = buffer.sample(return_info=True)
            tensors = (*_from_tensordict(batch), torch.as_tensor(info["priority_weight"]))
            buffer.update_priority(info["index"], next(errors))
            return tensors

        return call

    def insertion(self, content: Content) -> Work:
        buffer = self._buffer(content.transitions, 1)
        steps = cycle(range(len(content.observation)))

        def call() -> None:
            buffer.extend(self._flat(content, next(steps)))

        for _ in range(content.steps):
            call()
        return call

    def advantages(self, rollout: Rollout) -> Work:
        """Compute GAE with environments first and a trailing axis of one, as its collectors give them."""
        values, next_values, rewards, ends, terminated = (
            torch.from_numpy(np.ascontiguousarray(array.T))[..., None]
            for array in (rollout.values, rollout.next_values, rollout.rewards, rollout.ends, rollout.terminated)
        )
        return lambda: vec_generalized_advantage_estimate(
            GAMMA, GAE_LAMBDA, values, next_values, rewards, ends, terminated
        )

    def _buffer(self, transitions: int, batch_size: int, sampler: Any = None) -> Any:
        storage = LazyTensorStorage(transitions)
        return ReplayBuffer(storage=storage, sampler=sampler, batch_size=batch_size)

    def _filled(self, buffer: Any, content: Content, steps: Callable[[Content, Any], Any]) -> Any:
        for length in content.episodes():
            buffer.extend(steps(content, (slice(length), 0)))
        return buffer

    def _flat(self, content: Content, which: Any) -> Any:
        """Return transitions (count, ...) as one flat dict, which it indexes fastest."""
        observation = torch.from_numpy(content.observation[which])
        fields = {
            "observation": observation,
            "action": torch.from_numpy(content.action[which]),
            "reward": torch.from_numpy(content.reward[which]),
            "next_observation": torch.from_numpy(content.next_observation[which]),
            "terminated": torch.from_numpy(content.terminated[which]),
        }
        return TensorDict(fields, [len(observation)])

    def _nested(self, content: Content, which: Any) -> Any:
        """Return transitions (count, ...) as its environments give them and its transforms expect them."""
        flat = self._flat(content, which)
        following = {
            "observation": flat.pop("next_observation"),
            "reward": flat.pop("reward"),
            "terminated": flat.pop("terminated"),
            "done": torch.from_numpy(content.done[which]),
        }
        return flat.set("next", TensorDict(following, flat.batch_size))


def _from_tensordict(batch: Any) -> Tensors:
    return tuple(batch[key] for key in ("observation", "action", "reward", "next_observation", "terminated"))


PEERS: list[Library] = [_Peer()]
