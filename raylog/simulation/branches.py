"""Branches of storage, replication and metadata that the seeds of every kind must reach.

These are branches that faults reach rarely, or never with the settings of a real cluster. A bug in
a branch that no seed reaches stays hidden. A simulation draws its settings so that each of these
branches is reached now and then (`tuning.py` draws constants that are not settings).
"""

from __future__ import annotations

from raylog.actors.broker.child_processes import ChildProcesses
from raylog.actors.broker.metadata_log import MetadataLog
from raylog.actors.broker.rules.machine import BrokerMachine
from raylog.actors.broker.rules.voter import VoterRules
from raylog.actors.controller.actor import ControllerActor
from raylog.actors.controller.quorum import VoterQuorum
from raylog.actors.controller.rules.brokers import BrokerControl
from raylog.actors.controller.rules.changes import PartitionChange
from raylog.actors.controller.rules.partitions import PartitionControl
from raylog.actors.controller.rules.quorum import RivalLeads
from raylog.actors.controller.term import Term
from raylog.actors.metadata.followed import MetadataLost
from raylog.actors.metadata.log_copy import Truncate
from raylog.actors.metadata.records import Record
from raylog.actors.replica import follower_sessions, replica_fetcher
from raylog.actors.replica.partition import Partition
from raylog.actors.replica.rules.machine import FailUnsafe, PartitionMachine, Truncated
from raylog.actors.replica.rules.sessions import WAIT
from raylog.simulation.coverage import Arguments, Branch
from raylog.storage.durability import FlushJob
from raylog.storage.log import Log
from raylog.storage.reader import LogReader
from raylog.storage.recovery import Recovery
from raylog.storage.shared_state import SharedLogState
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
        "roll",
        lambda _, args: len(args[0]._shared.segments) > 1,
    ),
    Branch(
        "a closed segment is flushed", FlushJob, "run", lambda _, args: len(args[0].retired) > 0
    ),
    Branch("a short write is cut back", LogWriter, "_cut_back", refused=KafkaStorageError),
    Branch("a log goes offline", SharedLogState, "go_offline", refused=KafkaStorageError),
    Branch("unread bytes are checked before they are served", LogReader, "end_check"),
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
    Branch("a follower's log is truncated", Log, "_truncate"),
    Branch("a truncation removes segments", Log, "_remove_segments", lambda _, args: args[1] == []),
)


def _own_epoch(args: Arguments) -> int:
    """The follower's largest epoch that is not above the epoch that the leader named."""
    epochs, log_end_offset, _, epoch, _ = args
    found: int = epochs.end_offset_for(epoch, log_end_offset)[0]
    return found


REPLICATION = (
    Branch(
        "a follower truncates where the epoch that both know ended",
        replica_fetcher,
        "truncation_at_divergence",
        lambda _, args: _own_epoch(args) == args[3],
    ),
    Branch(
        "a follower truncates to an earlier epoch than the leader's (KIP-279)",
        replica_fetcher,
        "truncation_at_divergence",
        lambda _, args: 0 <= _own_epoch(args) < args[3],
    ),
    Branch(
        "a leader waits for the metadata that a follower has",
        follower_sessions,
        "fetch_obstacle",
        lambda part, _: part is WAIT,
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
        "an AlterPartitionManager of an older epoch is refused",
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


def _are_adopted(response: tuple[int, list[Record]], args: Arguments) -> bool:
    """Whether the first record given out existed before the controller's epoch began."""
    term, offset = args
    written_in = term.machine.image.terms.at(offset)
    return bool(response[1]) and written_in is not None and written_in.epoch < term.quorum.epoch


METADATA = (
    Branch("the lease keeps a rival out", VoterRules, "_check_lease", refused=NotController),
    Branch("a controller ends: another one serves", VoterQuorum, "take_over", refused=RivalLeads),
    Branch("a controller asks its voters for the lease", VoterQuorum, "probe"),
    Branch(
        "a voter cuts off what no majority had",
        VoterRules,
        "append",
        lambda ready, _: any(isinstance(change, Truncate) for change in ready.changes),
    ),
    Branch("a snapshot takes the place of entries", MetadataLog, "finish_install"),
    Branch(
        "a broker gets a snapshot",
        ControllerActor,
        "follow",
        lambda update, _: update.from_offset < 0,
    ),
    Branch(
        "a broker is told records that were adopted", Term, "records_for_one_response", _are_adopted
    ),
)
BROKERS = (
    Branch("a broker adopts its children", ChildProcesses, "adopt", lambda held, _: held != []),
    Branch(
        "a broker shuts down cleanly", BrokerControl, "_shut_down", lambda done, _: done.response
    ),
    Branch("a log cannot be opened", BrokerMachine, "_fail"),
    Branch("directories are strays", BrokerMachine, "strays", lambda found, _: found != []),
)
DISASTERS = (
    Branch("a log begins anew", Log, "truncate_fully"),
    Branch(
        "a truncation moves a high watermark back",
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
