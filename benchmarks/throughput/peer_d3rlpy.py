"""A process that updates an algorithm of d3rlpy on request, in another interpreter.

d3rlpy needs an older gymnasium, so that this file imports nothing of this project's. Each line of the input is a number
of updates to make; each line of the output says how many seconds they took, of the processor and of the clock.
"""

import json
import sys
import time
from typing import Any

import d3rlpy  # type: ignore[import-not-found]
import numpy as np
import torch

ALGORITHMS = {
    "TD3BC": d3rlpy.algos.TD3PlusBCConfig,
    "CQL": d3rlpy.algos.CQLConfig,
    "IQL": d3rlpy.algos.IQLConfig,
    "BCQ": d3rlpy.algos.BCQConfig,
}


def serve(name: str, data: str, settings: dict[str, Any]) -> None:
    """Read the data, and update as often as each line says."""
    torch.set_num_threads(1)
    d3rlpy.seed(1)
    arrays = np.load(data)
    dataset = d3rlpy.dataset.MDPDataset(**{key: arrays[key] for key in arrays})
    algorithm = ALGORITHMS[name](**settings).create(device="cpu:0")
    algorithm.build_with_dataset(dataset)
    _say({"d3rlpy": d3rlpy.__version__, "torch": torch.__version__})
    for line in sys.stdin:
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(int(line)):
            # A step of `fit`, without its logger and its progress bar.
            algorithm.update(dataset.sample_transition_batch(settings["batch_size"]))
        _say({"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall})


def _say(facts: dict[str, Any]) -> None:
    sys.__stdout__.write(json.dumps(facts) + "\n")  # type: ignore[union-attr]
    sys.__stdout__.flush()  # type: ignore[union-attr]


if __name__ == "__main__":
    # d3rlpy logs to the standard output, which is the channel of the figures.
    sys.stdout = sys.stderr
    serve(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
