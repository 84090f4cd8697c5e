"""InitProducerId: a producer id and epoch, and an end to what a predecessor left (KIP-98, KIP-360).

An open transaction is aborted first; the producer is told CONCURRENT_TRANSACTIONS and asks again.
With two-phase commit it may be kept instead, until somebody tells the new producer how it ends
(KIP-939).
"""

from __future__ import annotations

from dataclasses import replace

from raylog.actors.coordination.step import Asked
from raylog.actors.transaction.ending import fence
from raylog.actors.transaction.failures import failed
from raylog.actors.transaction.ids import Ids, completing
from raylog.actors.transaction.settings import TransactionSettings
from raylog.actors.transaction.state import (
    LAST_EPOCH,
    NEVER_MS,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    PREPARED,
    State,
    Transaction,
)
from raylog.actors.transaction.step import TransactionStep
from raylog.wire.errors import (
    ConcurrentTransactions,
    InvalidRequest,
    InvalidTransactionTimeout,
    ProducerFenced,
    TransactionalIdAuthorizationFailed,
    UnsupportedVersion,
)
from raylog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def init_producer_id(ids: Ids, step: TransactionStep, asked: Asked[InitProducerIdRequest]) -> None:
    """Answer InitProducerId 0-6 of a transactional id."""
    request = asked.request
    timeout_ms = _checked(request, ids.settings)
    transactional_id = request.transactional_id or ""
    found = ids.transactions.get(transactional_id)
    if found is None:
        fresh = Transaction(transactional_id, producer_id=ids.producer_ids.take(), producer_epoch=0)
        _begin(ids, step, asked, replace(fresh, timeout_ms=timeout_ms))
        return
    if found.state in PREPARED:
        raise completing(found)
    if not _knows(request, found):
        raise ProducerFenced(
            f"{transactional_id!r} has producer id {found.holder[0]}, not {request.producer_id}"
        )
    if found.state is not State.ONGOING:
        _begin(ids, step, asked, replace(_next(ids, request, found), timeout_ms=timeout_ms))
    elif request.keep_prepared_txn:
        _keep(ids, step, asked, replace(found, timeout_ms=timeout_ms))
    else:
        fence(ids, step, found)
        aborting = ConcurrentTransactions(f"{transactional_id!r} is being aborted")
        step.answer(asked, failed(request, asked.version, aborting))


def _checked(request: InitProducerIdRequest, settings: TransactionSettings) -> int:
    """The timeout in ms that the request asks for; raises why it is refused."""
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        raise InvalidRequest("a producer id and its epoch come together")
    if not request.transactional_id:
        raise InvalidRequest("the transactional id is empty")
    if request.enable_2pc and not settings.two_phase_commit:
        raise TransactionalIdAuthorizationFailed("two-phase commit is not enabled")
    if request.keep_prepared_txn and not settings.two_phase_commit:
        raise UnsupportedVersion("prepared transactions are kept for two-phase commit only")
    if request.keep_prepared_txn and not request.enable_2pc:
        raise InvalidRequest("only who takes part in two-phase commit keeps what is prepared")
    if request.enable_2pc:
        return NEVER_MS
    if not 0 < request.transaction_timeout_ms <= settings.timeout_max_ms:
        raise InvalidTransactionTimeout(
            f"{request.transaction_timeout_ms} ms, at most {settings.timeout_max_ms} are allowed"
        )
    return request.transaction_timeout_ms


def _knows(request: InitProducerIdRequest, found: Transaction) -> bool:
    """Whether the producer asks without an id, or with its latest, or repeats what rotated it."""
    if request.producer_id == NO_PRODUCER_ID or request.producer_id in (
        found.holder[0],
        found.after[0],
    ):
        return True
    return (
        request.producer_id == found.previous_producer_id and request.producer_epoch >= LAST_EPOCH
    )


def _next(ids: Ids, request: InitProducerIdRequest, found: Transaction) -> Transaction:
    """With the next epoch, or a new id after the last; a repeated request gets the same again."""
    says, has = request.producer_epoch, found.producer_epoch
    said = NO_EPOCH if request.producer_id == NO_PRODUCER_ID else says
    if found.is_exhausted and said in (NO_EPOCH, has):
        return replace(
            found,
            producer_id=ids.producer_ids.take(),
            producer_epoch=0,
            last_producer_epoch=NO_EPOCH if said == NO_EPOCH else has,
        )
    if said == NO_EPOCH:
        return replace(found, producer_epoch=has + 1, last_producer_epoch=NO_EPOCH)
    if said == has:
        return replace(found, producer_epoch=has + 1, last_producer_epoch=has)
    if said == found.last_producer_epoch:
        return found
    raise ProducerFenced(f"{found.transactional_id!r} has epoch {has}, not {said}")


def _begin(
    ids: Ids, step: TransactionStep, asked: Asked[InitProducerIdRequest], new: Transaction
) -> None:
    """Store that the producer has nothing open."""
    ids.change(
        step,
        replace(
            new,
            state=State.EMPTY,
            partitions={},
            start_ms=NO_TIME,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_EPOCH,
        ),
    )
    step.answer(
        asked,
        InitProducerIdResponse(producer_id=new.producer_id, producer_epoch=new.producer_epoch),
    )


def _keep(
    ids: Ids, step: TransactionStep, asked: Asked[InitProducerIdRequest], found: Transaction
) -> None:
    """Give the open transaction to a new producer, which may end it and do nothing else."""
    holder_id, epoch = found.holder
    if asked.request.producer_id != NO_PRODUCER_ID and asked.request.producer_epoch != epoch:
        raise ProducerFenced(
            f"{found.transactional_id!r} has epoch {epoch}, not {asked.request.producer_epoch}"
        )
    if epoch >= LAST_EPOCH:
        holder_id, epoch = ids.producer_ids.take(), -1
    kept = replace(found, next_producer_id=holder_id, next_producer_epoch=epoch + 1)
    ids.change(step, kept)
    step.answer(
        asked,
        InitProducerIdResponse(
            producer_id=kept.next_producer_id,
            producer_epoch=kept.next_producer_epoch,
            ongoing_txn_producer_id=kept.producer_id,
            ongoing_txn_producer_epoch=kept.producer_epoch,
        ),
    )
