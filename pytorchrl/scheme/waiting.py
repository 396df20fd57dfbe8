"""Why a scheme makes no update phase due."""

import math
from collections.abc import Mapping

from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.algorithms.update_plan import Collected, Wait
from pytorchrl.scheme.collector import Collecting
from storages.core.sampling.rate_limiter import RateLimiter
from storages.storage import Storage


def explain_wait(
    algorithm: Algorithm, storages: Mapping[str, Storage], collector: Collecting | None, episodes_learnt: int
) -> Wait:
    """Return why no update phase is due after the newest step, by the rate limit or the algorithm's plan.

    Args:
        algorithm: has the plan.
        storages: of all sources, by name.
        collector: fills the main storage; None where nothing is collected.
        episodes_learnt: number of episodes that had ended when update phases were last due.
    """
    empty = [name for name, storage in storages.items() if name != "main" and not len(storage)]
    if empty:
        return Wait(
            f"The source {empty[0]!r} holds no transition, and an update that draws from it fails.",
            f"transitions in {empty[0]!r}",
        )
    if collector is None:
        return Wait("Nothing is collected, so that each step makes one update phase.", "the next step")
    main = storages["main"]
    limiter = getattr(main, "rate_limiter", None)
    if limiter is not None:
        return _of_limiter(limiter)
    ended = collector.episodes - episodes_learnt
    collected = collected_since(collector.steps, ended, collector, episodes_learnt, main)
    return algorithm.plan.explain_wait(collected, len(main), main.capacity)


def collected_since(
    steps: int, episodes: int, collector: Collecting, episodes_learnt: int, storage: Storage
) -> Collected:
    """Return the numbers by which a plan decides whether an update phase is due.

    Args:
        steps: environment transitions before the newest step of the collector.
        episodes: episodes not learnt yet that had ended before it.
        collector: fills the main storage.
        episodes_learnt: number of episodes that had ended when update phases were last due.
        storage: the main one.
    """
    is_full = storage.on_policy and len(storage) == storage.capacity
    ended = collector.episodes - episodes_learnt
    return Collected(steps, collector.steps, episodes, ended, is_full, not len(storage))


def _of_limiter(limiter: RateLimiter) -> Wait:
    limit = limiter.limit
    missing = limit.min_size - limiter.inserted
    if missing > 0:
        return Wait(
            f"{limit} allows no batch before {limit.min_size:,} transitions are inserted; {limiter.inserted:,} are.",
            f"{missing:,} more transitions",
        )
    if limiter.due < 0:
        return Wait(
            f"{limit} allows no batch now: {limiter.drawn:,} rows were drawn for {limiter.inserted:,} transitions.",
            f"{math.ceil(-limiter.due / limit.samples_per_insert):,} more transitions",
        )
    return Wait(f"{limit} makes an update phase due.", "the next step, which makes it")
