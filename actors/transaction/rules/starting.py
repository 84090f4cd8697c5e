"""InitProducerId: assigns a producer id and epoch, and ends what a predecessor has left open.

See KIP-98 and KIP-360. An open transaction is aborted first; the producer gets
CONCURRENT_TRANSACTIONS and retries. With two-phase commit it may instead be kept until the new
producer is told how to end it (KIP-939).
"""

from __future__ import annotations

from dataclasses import replace

from raylog.actors.coordination.rules.step import ClientCall
from raylog.actors.transaction.rules.ending import fence
from raylog.actors.transaction.rules.failures import failed
from raylog.actors.transaction.rules.ids import Ids, completing
from raylog.actors.transaction.rules.settings import TransactionSettings
from raylog.actors.transaction.rules.state import (
    LAST_EPOCH,
    NEVER_MS,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    PREPARED,
    State,
    Transaction,
)
from raylog.actors.transaction.rules.step import TransactionStep
from raylog.wire.errors import (
    ConcurrentTransactions,
    InvalidRequest,
    InvalidTransactionTimeout,
    ProducerFenced,
    TransactionalIdAuthorizationFailed,
    UnsupportedVersion,
)
from raylog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def init_producer_id(
    ids: Ids, step: TransactionStep, call: ClientCall[InitProducerIdRequest]
) -> None:
    """Answer InitProducerId 0-6 for a transactional id."""
    request = call.request
    timeout_ms = _checked(request, ids.settings)
    transactional_id = request.transactional_id or ""
    found = ids.transactions.get(transactional_id)
    if found is None:
        fresh = Transaction(transactional_id, producer_id=ids.producer_ids.take(), producer_epoch=0)
        _begin(ids, step, call, replace(fresh, timeout_ms=timeout_ms))
        return
    if found.state in PREPARED:
        raise completing(found)
    if not _knows(request, found):
        raise ProducerFenced(
            f"{transactional_id!r} has producer id {found.holder[0]}, not {request.producer_id}"
        )
    if found.state is not State.ONGOING:
        _begin(ids, step, call, replace(_next(ids, request, found), timeout_ms=timeout_ms))
    elif request.keep_prepared_txn:
        _keep(ids, step, call, replace(found, timeout_ms=timeout_ms))
    else:
        fence(ids, step, found)
        aborting = ConcurrentTransactions(f"{transactional_id!r} is being aborted")
        step.answer(call, failed(request, call.version, aborting))


def _checked(request: InitProducerIdRequest, settings: TransactionSettings) -> int:
    """Return the requested timeout in ms; raises the error that refuses the request."""
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        raise InvalidRequest("a producer id and an epoch must be given together")
    if not request.transactional_id:
        raise InvalidRequest("the transactional id is empty")
    if request.enable_2pc and not settings.two_phase_commit:
        raise TransactionalIdAuthorizationFailed("two-phase commit is not enabled")
    if request.keep_prepared_txn and not settings.two_phase_commit:
        raise UnsupportedVersion("prepared transactions are kept only with two-phase commit")
    if request.keep_prepared_txn and not request.enable_2pc:
        raise InvalidRequest("only producers with two-phase commit keep prepared transactions")
    if request.enable_2pc:
        return NEVER_MS
    if not 0 < request.transaction_timeout_ms <= settings.timeout_max_ms:
        raise InvalidTransactionTimeout(
            f"{request.transaction_timeout_ms} ms, at most {settings.timeout_max_ms} are allowed"
        )
    return request.transaction_timeout_ms


def _knows(request: InitProducerIdRequest, found: Transaction) -> bool:
    """Whether the producer gives no id or its latest one, or repeats a change of its id."""
    if request.producer_id == NO_PRODUCER_ID or request.producer_id in (
        found.holder[0],
        found.after[0],
    ):
        return True
    return (
        request.producer_id == found.previous_producer_id and request.producer_epoch >= LAST_EPOCH
    )


def _next(ids: Ids, request: InitProducerIdRequest, found: Transaction) -> Transaction:
    """Return the state with the next epoch, or with a new id after the last epoch.

    A repeated request gets the same result.
    """
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
    ids: Ids, step: TransactionStep, call: ClientCall[InitProducerIdRequest], new: Transaction
) -> None:
    """Append a state in which the producer has no open transaction."""
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
        call,
        InitProducerIdResponse(producer_id=new.producer_id, producer_epoch=new.producer_epoch),
    )


def _keep(
    ids: Ids, step: TransactionStep, call: ClientCall[InitProducerIdRequest], found: Transaction
) -> None:
    """Hand the open transaction to a new producer, which may only end it."""
    holder_id, epoch = found.holder
    if call.request.producer_id != NO_PRODUCER_ID and call.request.producer_epoch != epoch:
        raise ProducerFenced(
            f"{found.transactional_id!r} has epoch {epoch}, not {call.request.producer_epoch}"
        )
    if epoch >= LAST_EPOCH:
        holder_id, epoch = ids.producer_ids.take(), -1
    kept = replace(found, next_producer_id=holder_id, next_producer_epoch=epoch + 1)
    ids.change(step, kept)
    step.answer(
        call,
        InitProducerIdResponse(
            producer_id=kept.next_producer_id,
            producer_epoch=kept.next_producer_epoch,
            ongoing_txn_producer_id=kept.producer_id,
            ongoing_txn_producer_epoch=kept.producer_epoch,
        ),
    )
