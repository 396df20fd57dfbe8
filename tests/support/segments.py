"""Batches of sequences with all kinds of ends, and their returns, computed step by step."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import pytorchrl as prl
from storages.transition import (
    ACT,
    BATCH_SIZES,
    DISCOUNT,
    DONE,
    DONE2,
    EPISODE,
    INDICES,
    MASK,
    OBS,
    OBS2,
    REW,
    SORTED_INDICES,
    TRUNC2,
    WEIGHTS,
    WINDOW,
)
from tests.support.by_hand import OBSERVATION_SIZE, envs_with, perturb

STEPS, PATHS = 4, 3
DISCOUNT_FACTOR = 0.9


def sequences_of(action: NDArray[Any], seed: int = 0) -> dict[str, torch.Tensor]:
    """(4, 3, ...): an unfinished episode; a terminated and a truncated one in one path; a padded path."""
    generator = np.random.default_rng(seed)
    begins, terminated, truncated, real = (np.zeros((STEPS, PATHS, 1), np.float32) for _ in range(4))
    terminated[1, 1], begins[2, 1], truncated[2, 1], begins[3, 1] = 1, 1, 1, 1
    real[:] = 1
    real[2:, 2] = 0
    size = (STEPS, PATHS)
    fields = {
        OBS: generator.normal(size=(*size, OBSERVATION_SIZE)).astype(np.float32),
        OBS2: generator.normal(size=(*size, OBSERVATION_SIZE)).astype(np.float32),
        ACT: action.copy(),
        REW: generator.normal(size=(*size, 1)).astype(np.float32),
        DONE: begins,
        DONE2: terminated,
        TRUNC2: truncated,
        DISCOUNT: (DISCOUNT_FACTOR * (1 - terminated)).astype(np.float32),
        MASK: real,
        WINDOW: np.ones((*size, 1), np.int64),
    }
    for field in (OBS, OBS2, ACT, REW):
        # The padding repeats the last real step.
        fields[field][2:, 2] = fields[field][1, 2]
    fields |= {
        WEIGHTS: generator.uniform(0.5, 1.5, (PATHS, 1)).astype(np.float32),
        INDICES: np.arange(PATHS)[:, None],
    }
    return {key: torch.from_numpy(value) for key, value in fields.items()}


def weights_of(batch: dict[str, torch.Tensor]) -> NDArray[np.float64]:
    """(T, B): the weight of each step in a mean."""
    mask = batch[MASK][..., 0].double().numpy()
    weights: NDArray[np.float64] = mask * batch[WEIGHTS].double().numpy()[:, 0] / mask.sum()
    return weights


def continuing(batch: dict[str, torch.Tensor], t: int, b: int) -> bool:
    """Whether the next step of a path is real and continues the episode."""
    return bool(t + 1 < len(batch[DONE]) and batch[MASK][t + 1, b] == 1 and batch[DONE][t + 1, b] == 0)


def backwards(batch: dict[str, torch.Tensor]) -> Iterator[tuple[int, int]]:
    """The real steps, later ones first."""
    steps, paths, _ = batch[MASK].shape
    for t in reversed(range(steps)):
        for b in range(paths):
            if batch[MASK][t, b]:
                yield t, b


def returns_by_hand(
    batch: dict[str, torch.Tensor], taken: Any, value: Any, next_value: Any, trace: Any
) -> NDArray[np.float64]:
    """(T, B): targets of Retrace by its recursion, from values (T, B)."""
    returns = np.zeros(batch[MASK].shape[:2])
    reward, discount = (batch[key][..., 0].double().numpy() for key in (REW, DISCOUNT))
    for t, b in backwards(batch):
        after = next_value[t, b]
        if continuing(batch, t, b):
            after = trace[t + 1, b] * (returns[t + 1, b] - taken[t + 1, b]) + value[t + 1, b]
        returns[t, b] = reward[t, b] + discount[t, b] * after
    return returns


def packed(batch: dict[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], list[tuple[int, int]]]:
    """The real steps of a batch as packed episodes, and their order."""
    lengths = batch[MASK][..., 0].sum(0).long()
    order = torch.sort(lengths, descending=True, stable=True).indices
    places = [(t, int(b)) for t in range(int(lengths.max())) for b in order if t < lengths[b]]
    steps, paths = (torch.tensor(which) for which in zip(*places, strict=True))
    alike = {key: value[steps, paths] for key, value in batch.items() if value.ndim >= 3 and key != MASK}
    sizes = torch.tensor([int((lengths > t).sum()) for t in range(int(lengths.max()))])
    own = {EPISODE: paths[:, None], BATCH_SIZES: sizes, SORTED_INDICES: order}
    return alike | own | {key: batch[key] for key in (WEIGHTS, INDICES)}, places


def linear(cls: Any, space: Any, **hyper_parameters: Any) -> Any:
    """An algorithm whose networks are single layers with perturbed initial weights."""
    envs = envs_with(space)
    actor = prl.OnPolicyActor.create_factory(hidden_sizes=(), initial_log_std=-0.3)("cpu", envs)
    algorithm = cls.create_factory(**hyper_parameters)("cpu", actor, envs)
    algorithm.seed(0)
    perturb(actor, 1, 0.5)
    for target in algorithm.training.targets.values():
        perturb(target.network, 2, 0.5)
    return algorithm
