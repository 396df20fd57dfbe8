"""Checkpoints that refer to the directories of several shards."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pytorchrl as prl
from pytorchrl.experiments.inspection.saved_storage import refuse_data_set
from pytorchrl.experiments.runs import storage_owner, storage_paths
from pytorchrl.experiments.runs.checkpoint import CheckpointError
from storages import DatasetError
from tests.support.shards import PRIORITISED, maker, slice_of


def composed(directory: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The configuration and the state of two shards on disk."""
    whole = prl.PERBuffer.create_factory(**PRIORITISED.hyper_parameters | {"directory": directory})
    group = prl.LocalShards([maker(prl.factory_of_shard(whole, number, 2)) for number in range(2)])
    replay = prl.ShardedReplay(group)
    for _ in range(2):
        replay.insert_data_slice(slice_of(np.random.default_rng(0), 10))
    state = replay.state_dict()
    replay.close()
    return {"storage": {**whole.config}, "sources": {}}, {"storage": state, "sources": {}}


def test_shards_outside_the_run_folder_are_identified_by_their_commits(tmp_path: Path) -> None:
    config, scheme = composed(tmp_path / "kept")
    storage_paths.refuse_storages_of_others(config, scheme, tmp_path / "run")
    storage_owner.refuse_to_empty(config, scheme, tmp_path / "run")
    other = {**scheme, "storage": {**scheme["storage"], "shards": [{"position": {"commit": 9, "checksum": 1}}] * 2}}
    with pytest.raises(CheckpointError, match=r"shard-0, outside the run folder, which lacks the commit"):
        storage_paths.refuse_storages_of_others(config, other, tmp_path / "run")


def test_a_missing_shard_is_reported_by_name(tmp_path: Path) -> None:
    config, scheme = composed(tmp_path / "kept")
    storage_paths.refuse_storages_that_are_gone(config, scheme, tmp_path / "checkpoint.pt")
    (tmp_path / "kept" / "shard-1").rename(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="shard-1, which does not exist"):
        storage_paths.refuse_storages_that_are_gone(config, scheme, tmp_path / "checkpoint.pt")


def test_inspecting_a_sharded_storage_is_refused() -> None:
    with pytest.raises(DatasetError, match="divided among 2 shards"):
        refuse_data_set({"shards": [{}, {}]}, {"name": "PERBuffer"})
