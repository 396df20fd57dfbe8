"""Trains an algorithm of d3rlpy on a data set, and writes its evaluations; run by an interpreter that has d3rlpy.

It imports nothing of this project: d3rlpy needs an older gymnasium, and so another virtual environment.
"""

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import d3rlpy
import gymnasium as gym
import numpy as np
import torch


def main(job: dict[str, Any]) -> None:
    """Train as a job says, and write its results."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    d3rlpy.seed(job["seed"])
    env = gym.make(job["env"])
    is_box = isinstance(env.action_space, gym.spaces.Box)
    episodes = list(_episodes(Path(job["data"])))
    dataset = d3rlpy.dataset.create_infinite_replay_buffer(episodes=episodes)
    encoder = d3rlpy.models.VectorEncoderFactory(hidden_units=job["hidden_sizes"])
    encoders = ("actor", "critic") if is_box else ("",)
    settings = dict(job["settings"]) | {f"{one}_encoder_factory".lstrip("_"): encoder for one in encoders}
    if job["algorithm"] == "ReBRAC":
        settings["critic_encoder_factory"] = d3rlpy.models.VectorEncoderFactory(
            hidden_units=job["hidden_sizes"], use_layer_norm=True
        )
    settings["observation_scaler"] = d3rlpy.preprocessing.StandardObservationScaler()
    further = {"IQL": "value", "BCQ": "imitator", "BEAR": "imitator"}.get(job["algorithm"])
    if further is not None:
        settings[f"{further}_encoder_factory"] = encoder
    if is_box:
        settings["action_scaler"] = d3rlpy.preprocessing.MinMaxActionScaler(
            minimum=env.action_space.low, maximum=env.action_space.high
        )
    algorithm = getattr(d3rlpy.algos, f"{job['algorithm']}Config")(**settings).create(device="cpu:0")
    returns = {}
    for epoch, _ in algorithm.fitter(
        dataset,
        n_steps=job["updates"],
        n_steps_per_epoch=job["test_every"],
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
        show_progress=False,
    ):
        # Other start states in each evaluation, as ours have.
        seeds = np.random.SeedSequence((job["seed"], epoch)).generate_state(job["episodes"])
        returns[epoch * job["test_every"]] = _mean_return(algorithm, env, seeds.tolist())
    file = Path(job["result"])
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps({"returns": returns}), encoding="utf-8")
    partial.replace(file)


def _episodes(path: Path) -> Any:
    """Return the episodes of a file written by `write_dataset`."""
    with np.load(path) as arrays:
        fields = {name: arrays[name] for name in ("Observation", "Action", "Reward", "Length", "Terminated")}
    begin = 0
    for number, length in enumerate(fields["Length"]):
        rows = slice(begin, begin + length)
        # Each episode has one more observation than steps.
        seen = fields["Observation"][begin + number : begin + number + length]
        yield d3rlpy.dataset.Episode(
            seen.astype(np.float32),
            fields["Action"][rows],
            fields["Reward"][rows].astype(np.float32),
            terminated=bool(fields["Terminated"][number]),
        )
        begin += length


def _mean_return(algorithm: Any, env: gym.Env[Any, Any], seeds: list[int]) -> float:
    total = 0.0
    for seed in seeds:
        seen, _ = env.reset(seed=seed)
        ended = False
        while not ended:
            action = algorithm.predict(np.asarray(seen, np.float32)[None])[0]
            seen, reward, terminated, truncated, _ = env.step(action)
            total += float(reward)
            ended = terminated or truncated
    return total / len(seeds)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
