"""Branches of the client's code that the seeds of this kind must reach."""

from __future__ import annotations

from raylog.client.consumer.commits import CommitFailed, Commits
from raylog.client.consumer.group.classic import ClassicMember
from raylog.client.consumer.group.consumer import ConsumerMember
from raylog.client.consumer.positions import Positions
from raylog.client.consumer.session import FetchSession
from raylog.client.coordinators import Coordinators
from raylog.client.producer.accumulator import Accumulator
from raylog.client.producer.sender import Sender
from raylog.client.producer.transaction_state import TransactionState
from raylog.client.transactions import TransactionRequests
from raylog.simulation.coverage import Arguments, Branch


def _something(result: object, _: Arguments) -> bool:
    return bool(result)


ALL = (
    Branch("a batch is sent again", Accumulator, "refused"),
    Branch("a batch is given up after it was sent", Accumulator, "failed"),
    Branch("batches are given up that were never sent", Accumulator, "expire", _something),
    Branch(
        "a producer goes on under the next epoch",
        Sender,
        "_take_identity",
        lambda _, args: args[1].producer_epoch > 0,
    ),
    Branch("a transaction cannot be committed", TransactionState, "broken"),
    Branch("a transactional producer is of no more use", TransactionState, "ruined"),
    Branch("a transaction has no outcome yet", TransactionRequests, "end", refused=Exception),
    Branch("a fetch session begins anew", FetchSession, "begin_anew"),
    Branch("a new leader is asked for the epochs of what was read", Positions, "_take_end"),
    Branch("a coordinator is looked for again", Coordinators, "forget"),
    Branch("a classic member is put out", ClassicMember, "_lose", _something),
    Branch("a member of a KIP-848 group is put out", ConsumerMember, "_put_out", _something),
    Branch("a commit of who is put out fails", Commits, "_commit", refused=CommitFailed),
)
