"""Branches of deletion and compaction that the seeds of this kind must reach."""

from __future__ import annotations

from raylog.actors.gateway import topic_rules as rules
from raylog.actors.replica.partition import Partition
from raylog.simulation.coverage import Branch
from raylog.storage.compaction import Compaction
from raylog.storage.log import Log
from raylog.storage.producers import ProducerStates

ALL = (
    Branch("segments go by retention", Log, "retention", lambda gone, _: gone != []),
    Branch("records are deleted by request", Partition, "delete_records"),
    Branch("a batch is compacted away", Compaction, "left_of", lambda left, _: left is None),
    Branch(
        "a batch loses some of its records",
        Compaction,
        "left_of",
        lambda left, args: isinstance(left, bytes),
    ),
    Branch(
        "a batch is left empty for its producer", Compaction, "_empty", lambda left, _: bool(left)
    ),
    Branch("a tombstone gets its horizon", Compaction, "_with_horizon"),
    Branch("a producer expires", ProducerStates, "expire", lambda count, _: count > 0),
    Branch("a header lies about its largest timestamp", rules, "set_max_timestamp"),
)
