"""Branches of the groups' code that the seeds of this kind must reach."""

from __future__ import annotations

from raylog.actors.group.loading import Loading
from raylog.actors.group.rules.classic import rebalance as classic
from raylog.actors.group.rules.consumer import rebalance as consumer
from raylog.actors.group.rules.shard import Shard
from raylog.simulation.coverage import Branch

ALL = (
    Branch("a classic group rebalances", classic, "prepare"),
    Branch("a classic member's session ends", classic, "session_time_passed"),
    Branch("a classic group waits for members to join again", classic, "_wait_for_joins"),
    Branch("a classic group waits in vain for members to join", classic, "join_time_passed"),
    Branch("a consumer group has a new target", consumer, "update_target"),
    Branch("a consumer's session ends", consumer, "session_time_passed"),
    Branch(
        "committed offsets are read as a shard is loaded",
        Loading,
        "place_some",
        lambda _, args: len(args[0].commits) > 0,
        before=True,
    ),
    Branch(
        "offsets go with their topic",
        Shard,
        "forget_gone",
        lambda _, args: len(args[0]._deleted) > 0 and len(args[1].records) > 0,
    ),
    Branch(
        "a topic is gone when a shard has been loaded",
        Shard,
        "forget_gone",
        lambda _, args: len(args[0]._deleted) == 0 and len(args[1].records) > 0,
    ),
)
