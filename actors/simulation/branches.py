"""Branches of storage, replication and metadata that seeds of every kind are to take.

What faults rarely lead to stands here, and what they never lead to with the settings of a real
cluster. A mistake in a branch that no seed takes stays hidden. A simulation draws its settings so
that each of these is taken now and then (`tuning.py`
has those that are no settings).
"""

from __future__ import annotations

from raylog.actors.broker.family import Family
from raylog.actors.broker.machine import BrokerMachine
from raylog.actors.broker.voter import Voter
from raylog.actors.controller.actor import ControllerActor
from raylog.actors.controller.brokers import BrokerControl
from raylog.actors.controller.changes import PartitionChange
from raylog.actors.controller.partitions import PartitionControl
from raylog.actors.controller.quorum import RivalLeads, VoterQuorum
from raylog.actors.controller.term import Term
from raylog.actors.metadata.followed import MetadataLost
from raylog.actors.metadata.log import MetadataLog
from raylog.actors.metadata.records import Record
from raylog.actors.replica import serving, streams
from raylog.actors.replica.machine import FailUnsafe, PartitionMachine, Truncated
from raylog.actors.replica.partition import Partition
from raylog.actors.simulation.coverage import Arguments, Branch
from raylog.storage.jobs import FlushJob
from raylog.storage.log import Log
from raylog.storage.readable import ReadableLog
from raylog.storage.recovery import Recovery
from raylog.storage.writer import LogWriter
from raylog.wire.errors import (
    FencedLeaderEpoch,
    KafkaStorageError,
    NotController,
    NotEnoughReplicas,
    StaleBrokerEpoch,
)

STORAGE = (
    Branch(
        "a full segment is closed, another begins",
        LogWriter,
        "_roll",
        lambda _, args: len(args[0]._segments) > 1,
    ),
    Branch(
        "a closed segment is flushed", FlushJob, "run", lambda _, args: len(args[0].retired) > 0
    ),
    Branch("a short write is cut back", LogWriter, "_cut_back", refused=KafkaStorageError),
    Branch("a log goes offline", LogWriter, "_go_offline", refused=KafkaStorageError),
    Branch("unread bytes are checked before they are served", ReadableLog, "end_check"),
    Branch(
        "recovery resumes at a checkpoint", Recovery, "_resume", lambda resumes, _: bool(resumes)
    ),
    Branch(
        "recovery does not believe a checkpoint",
        Recovery,
        "_resume",
        lambda resumes, args: args[2] >= 0 and not resumes,
    ),
    Branch("recovery takes an index for true", Recovery, "_restore", lambda trusts, _: trusts),
    Branch("recovery makes an index anew", Recovery, "_restore", lambda trusts, _: not trusts),
    Branch(
        "recovery finds bytes behind the data",
        Recovery,
        "_judge_tail",
        lambda _, args: args[1].sealed,
    ),
    Branch("recovery finds a log that was closed", Recovery, "_closed_cleanly", lambda yes, _: yes),
    Branch("recovery drops segments behind a gap", Recovery, "_drop_from"),
    Branch("a follower's log is cut", Log, "_truncate"),
    Branch("segments are removed by a cut", Log, "_remove_segments", lambda _, args: args[1] == []),
)


def _own_epoch(args: Arguments) -> int:
    """The follower's largest epoch that is not above the one that the leader named."""
    epochs, log_end_offset, _, epoch, _ = args
    found: int = epochs.end_offset_for(epoch, log_end_offset)[0]
    return found


REPLICATION = (
    Branch(
        "a follower cuts where the epoch that both know ended",
        streams,
        "cut_at_divergence",
        lambda _, args: _own_epoch(args) == args[3],
    ),
    Branch(
        "a follower cuts back to an earlier epoch than the leader's (KIP-279)",
        streams,
        "cut_at_divergence",
        lambda _, args: 0 <= _own_epoch(args) < args[3],
    ),
    Branch(
        "a leader waits for the metadata that a follower has",
        serving,
        "_standing",
        lambda part, _: part is serving.WAIT,
    ),
    Branch(
        "a write is refused: too few are in sync",
        PartitionMachine,
        "require_enough_replicas",
        refused=NotEnoughReplicas,
    ),
    Branch(
        "a write fails: too few are in sync since",
        Partition,
        "_carry_out",
        lambda _, args: isinstance(args[1], FailUnsafe),
    ),
    Branch(
        "a leader that hears nobody serves no client",
        PartitionMachine,
        "_cut_off",
        lambda effects, _: effects != [],
    ),
)
ELECTIONS = (
    Branch(
        "eligible leaders are noted (KIP-966)",
        PartitionChange,
        "_eligible",
        lambda elr, _: elr != (),
    ),
    Branch(
        "an eligible leader is elected (KIP-966)",
        PartitionChange,
        "_elected",
        lambda leader, args: leader in args[0]._state.elr,
    ),
    Branch(
        "a reassignment ends",
        PartitionChange,
        "record",
        lambda record, args: record is not None and record.adding_replicas == (),
    ),
    Branch(
        "an AlterPartition of an older epoch is refused",
        PartitionControl,
        "_check_epochs",
        refused=FencedLeaderEpoch,
    ),
    Branch(
        "a broker goes on with its session", BrokerControl, "_resumes", lambda goes_on, _: goes_on
    ),
    Branch(
        "a broker's session ends",
        BrokerControl,
        "expire",
        lambda decision, _: decision.records != [],
    ),
    Branch("a broker's epoch is over", BrokerControl, "current", refused=StaleBrokerEpoch),
)


def _are_adopted(told: tuple[int, list[Record]], args: Arguments) -> bool:
    """Whether the first record told was there before the controller's epoch began."""
    term, offset = args
    written_in = term.machine.image.terms.at(offset)
    return bool(told[1]) and written_in is not None and written_in.epoch < term.quorum.epoch


METADATA = (
    Branch("the lease keeps a rival out", Voter, "_check_lease", refused=NotController),
    Branch("a controller ends: another one serves", VoterQuorum, "take_over", refused=RivalLeads),
    Branch("a controller asks its voters for the lease", VoterQuorum, "probe"),
    Branch(
        "a voter cuts off what no majority had",
        MetadataLog,
        "cut",
        lambda _, args: args[1] < args[0].next_offset,
        before=True,
    ),
    Branch("a snapshot takes the place of entries", MetadataLog, "finish_install"),
    Branch(
        "a broker gets a snapshot",
        ControllerActor,
        "follow",
        lambda update, _: update.from_offset < 0,
    ),
    Branch("a broker is told records that were adopted", Term, "told_at_once", _are_adopted),
)
BROKERS = (
    Branch("a broker adopts its children", Family, "adopt", lambda held, _: held != []),
    Branch(
        "a broker shuts down cleanly", BrokerControl, "_shut_down", lambda done, _: done.response
    ),
    Branch("a log cannot be opened", BrokerMachine, "_fail"),
    Branch("directories are strays", BrokerMachine, "strays", lambda found, _: found != []),
)
DISASTERS = (
    Branch("a log begins anew", Log, "truncate_fully"),
    Branch(
        "a high watermark goes back in a cut",
        PartitionMachine,
        "handle",
        lambda _, args: (
            isinstance(args[1], Truncated) and args[1].log_end_offset < args[0].high_watermark
        ),
        before=True,
    ),
    Branch(
        "the last known leader is elected (KIP-966)",
        PartitionChange,
        "_last_resort",
        lambda leader, args: leader in args[0]._state.last_known_elr,
    ),
    Branch(
        "an unclean leader is elected",
        PartitionChange,
        "_last_resort",
        lambda leader, args: leader >= 0 and leader not in args[0]._state.last_known_elr,
    ),
    Branch("metadata is refused", VoterQuorum, "take_over", refused=MetadataLost),
)
ALL = (*STORAGE, *REPLICATION, *ELECTIONS, *METADATA, *BROKERS)
