"""The kinds of data sets, after Fu et al., "D4RL: Datasets for Deep Data-Driven Reinforcement Learning"."""

import json
import os
import re
from collections.abc import Callable, Iterator
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from pytorchrl.agent.envs import VecEnv
from pytorchrl.agent.envs.spaces import space_as_data
from pytorchrl.commands.data.making.agent import EvaluatedPolicy, TrainedAgent, agent_of
from pytorchrl.commands.data.making.recorder import Recorder, random_actions
from pytorchrl.comparison.references import known_reference
from pytorchrl.experiments.policies.trained_policy import read_policy
from pytorchrl.experiments.recordings.demonstrations import episodes_of_actor
from pytorchrl.scheme.evaluation import evaluate
from pytorchrl.version import VERSION
from storages.datasets import About, Written, first_transitions, format_for, open_dataset, return_of, write_dataset
from storages.datasets.operations import HIGH, LOW
from storages.episode import Episode
from storages.files import write_atomically

Kind: TypeAlias = Literal["random", "medium", "medium-replay", "expert", "mixed"]
_RANDOM_EPISODES, _EXPERT_EPISODES = 100, 20
_STREAMS = {"random": 0, "medium": 1, "expert": 2, "references": 3}
"""Spawn keys of the random number streams of a seed."""


def make_dataset(
    env: str,
    kind: Kind,
    path: str | os.PathLike[str] | None = None,
    *,
    algorithm: str | None = None,
    transitions: int = 100_000,
    train_steps: int | None = None,
    seed: int = 0,
    runs: str | os.PathLike[str] = "runs/data",
    format: str | None = None,  # noqa: A002
) -> Written:
    """Train an agent where the kind needs one, record its episodes, and write them as a data set.

    Called again after it was stopped, it goes on; the data is the same. The metadata say how it was made, and have the
    returns that normalised scores of 0 and 1 stand for: those known for the environment
    (`pytorchrl/comparison/reference_returns.yaml`), else those of random actions and of the expert.

    Args:
        env: a gymnasium id.
        kind: "random" is uniform actions; "expert" the policy of the best evaluation; "medium" that whose return is
            nearest a third, normalised by those of random actions and of the expert; "medium-replay" all that training
            had stored when the policy was medium; "mixed" half medium, half expert.
        path: a path where nothing is yet; ENV-KIND.npz where None.
        algorithm: of the agent; SAC where actions are a Box, else DQN.
        transitions: how many to record at least, whole episodes; medium-replay has as many as there are.
        train_steps: environment transitions to train for; those of the preset where None, else 1,000,000 in a Box of
            actions and 100,000 in others.
        seed: all randomness follows from it.
        runs: where agents are trained, and parts of data sets are kept until all are there.
        format: one of :data:`storages.datasets.FORMATS`.

    Raises:
        CompositionError: the algorithm does not learn from replayed transitions of its own.
        DatasetError: the path exists already.
        InterruptedError: it was stopped by Ctrl-C or SIGTERM.
        ValueError: a number is not positive, or ``kind`` is unknown.
    """
    if kind not in _STREAMS and kind not in ("medium-replay", "mixed"):
        raise ValueError(f"data make: the kind must be random, medium, medium-replay, expert or mixed, got {kind!r}")
    for name, number in (("transitions", transitions), ("train_steps", train_steps)):
        if number is not None and number < 1:
            raise ValueError(f"data make: {name} must be at least 1, got {number}")
    place = Path(f"{env.replace('/', '-')}-{kind}.npz") if path is None else Path(path)
    format_for(place, format)
    making = _Making(agent_of(env, algorithm, train_steps, seed, Path(runs)), transitions)
    written = write_dataset(
        place, making.episodes(kind), format=format, about=making.about(env, kind), allow_nonfinite=True
    )
    making.forget()
    return written


class _Making:
    """A data set that is being made."""

    def __init__(self, agent: TrainedAgent, transitions: int) -> None:
        self._agent, self._transitions = agent, transitions
        self._recorders: list[Recorder] = []

    def episodes(self, kind: Kind) -> Iterator[Episode]:
        """Return all episodes of the data set, which trains and records what is missing."""
        if kind == "random":
            return self._recorded("random", random_actions, self._transitions)
        self._agent.train()
        if kind == "medium-replay":
            return first_transitions(open_dataset(self._agent.replay), self._medium().steps)
        if kind == "mixed":
            half = self._transitions // 2
            rest = self._transitions - half
            return chain(self._of_policy("medium", half), self._of_policy("expert", rest))
        return self._of_policy(kind, self._transitions)

    def about(self, env: str, kind: Kind) -> About:
        """Return the metadata of the data set; the agent must be trained, unless the kind is random."""
        agent = self._agent
        with agent.envs() as envs:
            observation, action = space_as_data(envs.observation_space), space_as_data(envs.action_space)
            spec = envs.env_spec
        is_random = kind == "random"
        low, high, source = self._references(env, is_random)
        policies = {} if is_random else {"medium": self._medium(), "expert": agent.expert()}
        needed = {"mixed": ["medium", "expert"], "medium-replay": ["medium"]}.get(kind, [kind])
        name = re.sub(r"-v\d+$", "", env.rpartition("/")[2]).lower()
        return About(
            dataset_id=f"{name}/{kind}-v0",
            observation_space=observation,
            action_space=action,
            env_spec=spec,
            algorithm_name="random" if is_random else agent.parts.algorithm.name,
            description=f"{kind}, made by: python -m pytorchrl data make --env {env} --kind {kind} --seed {agent.seed}",
            further={
                LOW: low,
                **({} if high is None else {HIGH: high}),
                "ref_source": source,
                "seed": agent.seed,
                "train_steps": agent.parts.steps,
                "kind": kind,
                "trained_steps": {of: policies[of].steps for of in needed if of in policies},
                "policy_returns": {of: policies[of].mean_return for of in needed if of in policies},
                "versions": {"pytorchrl": VERSION}
                | {package: metadata.version(package) for package in ("gymnasium", "torch")},
            },
        )

    def forget(self) -> None:
        """Delete the recorded parts, which the data set contains."""
        for recorder in self._recorders:
            recorder.forget()

    def _of_policy(self, name: Literal["medium", "expert"], transitions: int) -> Iterator[Episode]:
        policy = self._agent.expert() if name == "expert" else self._medium()
        return self._recorded(name, lambda envs, seed: read_policy(policy.file).algorithm, transitions)

    def _recorded(self, name: str, actor: Callable[[VecEnv, int], Any], transitions: int) -> Iterator[Episode]:
        sequence = np.random.SeedSequence(self._agent.seed, spawn_key=(_STREAMS[name],))
        # Each half of mixed data has parts of its own.
        folder = self._agent.folder.with_name(f"{self._agent.folder.name}-{name}-{transitions}")
        recorder = Recorder(folder, self._agent.envs, sequence)
        self._recorders.append(recorder)
        return recorder.record(actor, transitions, name)

    def _medium(self) -> EvaluatedPolicy:
        return self._agent.medium(self._measured("random"))

    def _references(self, env: str, is_random: bool) -> tuple[float, float | None, str]:
        known = known_reference(env)
        if known is not None:
            return known.low, known.high, known.source
        if is_random:
            return self._measured("random"), None, "random actions; the expert is not trained"
        source = f"random actions over {_RANDOM_EPISODES} episodes, the expert over {_EXPERT_EPISODES}"
        return self._measured("random"), self._measured("expert"), source

    def _measured(self, name: Literal["random", "expert"]) -> float:
        """Return the mean return of random actions, or of the greedy expert, which is measured once and kept."""
        file = self._agent.folder / "references" / f"{name}.json"
        if not file.is_file():
            seed = int(
                np.random.SeedSequence(self._agent.seed, spawn_key=(_STREAMS["references"],)).generate_state(1)[0]
            )
            with self._agent.envs() as envs:
                if name == "expert":
                    expert = read_policy(self._agent.expert().file).algorithm
                    value = evaluate(expert, envs, _EXPERT_EPISODES, seed).mean_return
                else:
                    episodes = episodes_of_actor(random_actions(envs, seed), envs, seed)
                    value = float(np.mean([return_of(next(episodes)) for _ in range(_RANDOM_EPISODES)]))
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, json.dumps(value).encode())
        return float(json.loads(file.read_text()))
