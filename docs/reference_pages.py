"""Which public names are on which page of the API reference."""

import inspect
from typing import Any

import gymnasium

import pytorchrl as prl

KINDS: tuple[tuple[str, Any], ...] = (
    ("algorithms", prl.Algorithm),
    ("storages", prl.Storage),
    ("explorers", (prl.Explorer, prl.Schedule)),
    ("actors", prl.Actor),
    ("callbacks", prl.Callback),
    ("optimisers", prl.Optimizer),
    ("environments", (gymnasium.Env, gymnasium.Wrapper)),
    ("errors", Exception),
)
"""Pages, and the classes whose children are on them."""
OTHERS = {
    "storages": (
        *("Episodes", "LocalShards", "MixedSource", "MixedStorage", "RandomShift", "RateLimit", "ReplayShard"),
        *("Sequences", "ShardGroup", "ShardedReplay", "SliceWriter", "factory_of_shard", "from_dataset"),
    ),
    "environments": ("LearntReward", "RewardFunction", "VecEnv", "VecStep", "atari_envs"),
    "algorithms": (
        *("ActingStep", "EveryEpisodes", "EveryRollout", "EveryTransitions"),
        *("Losses", "Needs", "Result", "Rows", "UpdatePlan", "View"),
    ),
    "explorers": ("Exploration",),
}
FIRST = ("Scheme", "Learner", "VecEnv", "Storage", "ReplayBuffer", "Callback", "Actor", "Optimizer", "Explorer")
"""What a page begins with; the rest is in alphabetical order."""


def reference(page: str) -> str:
    """The names of a page, as the plugin for references wants them."""
    names = [name for name in prl.__all__ if _page_of(name) == page]
    names.sort(key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name.lower()))
    return "\n\n".join(f"::: pytorchrl.{name}" for name in names)


def _page_of(name: str) -> str:
    each = getattr(prl, name)
    if isinstance(each, str):
        return "fields"
    if inspect.ismodule(each):
        return "modules"
    if inspect.isclass(each):
        for page, bases in KINDS:
            if issubclass(each, bases):
                return page
    return next((page for page, names in OTHERS.items() if name in names), "learner")
