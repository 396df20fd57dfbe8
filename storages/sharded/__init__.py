"""Sharded replay: replay storages in several processes, from which one learner samples batches."""

from storages.sharded.groups import LocalShards, Pending, ShardGroup, ShardLostError, SliceWriter
from storages.sharded.replay_shard import ReplayShard, factory_of_shard
from storages.sharded.sharded_replay import ShardedReplay

__all__ = [
    "LocalShards",
    "Pending",
    "ReplayShard",
    "ShardGroup",
    "ShardLostError",
    "ShardedReplay",
    "SliceWriter",
    "factory_of_shard",
]
