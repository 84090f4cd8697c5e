"""Branches of the transactions' code that the seeds of this kind must reach."""

from __future__ import annotations

from raylog.actors.coordination.hosting import Host
from raylog.actors.group.loading import Loading
from raylog.actors.replica.verifying import Verification
from raylog.actors.transaction.markers import MarkerSender
from raylog.actors.transaction.rules import aging, ending
from raylog.simulation.coverage import Branch
from raylog.storage.producers import Duplicate, ProducerStates
from raylog.wire.errors import (
    InvalidProducerEpoch,
    ProducerFenced,
    TransactionCoordinatorFenced,
)

ALL = (
    Branch("a late EndTxn is refused", ending, "_check_holder", refused=ProducerFenced),
    Branch("an EndTxn is answered again", ending, "_is_repeated", lambda repeated, _: repeated),
    Branch("a transaction times out", aging, "fence"),
    Branch("markers are lost with their link", MarkerSender, "_lost"),
    Branch("markers are sent again", MarkerSender, "_again"),
    Branch(
        "a marker of an earlier coordinator is refused",
        ProducerStates,
        "check_marker",
        refused=TransactionCoordinatorFenced,
    ),
    Branch(
        "a marker of an older producer epoch is refused",
        ProducerStates,
        "check_marker",
        refused=InvalidProducerEpoch,
    ),
    Branch(
        "a batch that comes twice is answered from the log",
        ProducerStates,
        "check",
        lambda found, _: isinstance(found, Duplicate),
    ),
    Branch(
        "writes that wait for their coordinator fail",
        Verification,
        "fail",
        lambda _, args: args[0].held != [],
        before=True,
    ),
    Branch(
        "offsets are pending at the end of a load",
        Loading,
        "place_pending",
        lambda _, args: len(args[0]._offsets.pending) > 0,
    ),
    Branch("a shard is read again after a failed append", Host, "_fail"),
)
