"""Ends transactions: by EndTxn, by fencing, and with the last record when all markers are written.

In transaction version 2 every end raises the epoch (KIP-890), so that a late request cannot affect
the next transaction. `shard` has the table of all requests. These are the answers to EndTxn:

| EndTxn 5         | abort, repeated | abort      | commit, repeated | commit     | anybody else |
|------------------|-----------------|------------|------------------|------------|--------------|
| EMPTY            | fenced          | aborts     | fenced           | invalid    | refused      |
| ONGOING          | fenced          | aborts     | fenced           | commits    | refused      |
| PREPARE_…        | concurrent      | concurrent | concurrent       | concurrent | concurrent   |
| COMPLETE_COMMIT  | invalid         | aborts     | the same again   | invalid    | refused      |
| COMPLETE_ABORT   | the same again  | aborts     | invalid          | invalid    | refused      |

| EndTxn 0-4       |                 | abort      |                  | commit     | anybody else |
|------------------|-----------------|------------|------------------|------------|--------------|
| EMPTY            |                 | invalid    |                  | invalid    | refused      |
| ONGOING          |                 | aborts     |                  | commits    | refused      |
| PREPARE_…        |                 | concurrent |                  | concurrent | refused      |
| COMPLETE_COMMIT  |                 | invalid    |                  | done       | refused      |
| COMPLETE_ABORT   |                 | done       |                  | invalid    | refused      |

A request is repeated if it has the previous epoch, or the last epoch of the previous producer id.
Refused means INVALID_PRODUCER_ID_MAPPING for another producer id, PRODUCER_FENCED for another
epoch. In version 2 a producer goes on while markers are being written, under the raised epoch. It
may abort its next transaction, which the coordinator does not know of yet, before the previous one
is complete.
"""

from __future__ import annotations

from dataclasses import replace

from raylog.actors.coordination.rules.step import ClientCall, Counted, put
from raylog.actors.metadata.features import TRANSACTION_VERSION
from raylog.actors.transaction.rules.ids import Ids, completing
from raylog.actors.transaction.rules.state import (
    EPOCH_MAX,
    FIRST_VERSION,
    LAST_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    OWN_EPOCHS,
    PREPARED,
    RESTING,
    State,
    Transaction,
)
from raylog.actors.transaction.rules.step import TransactionStep
from raylog.wire.errors import InvalidProducerIdMapping, InvalidTxnState, ProducerFenced
from raylog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

OWN_EPOCHS_SINCE = 5
"""The version of EndTxn that raises the epoch."""
_ENDED = {(State.COMPLETE_COMMIT, True), (State.COMPLETE_ABORT, False)}


def end_transaction(ids: Ids, step: TransactionStep, call: ClientCall[EndTxnRequest]) -> None:
    """Answer EndTxn 0-5."""
    if call.version < OWN_EPOCHS_SINCE:
        _end_first(ids, step, call)
    else:
        _end(ids, step, call)


def _end_first(ids: Ids, step: TransactionStep, call: ClientCall[EndTxnRequest]) -> None:
    """End a transaction as before version 2: the epoch stays."""
    request = call.request
    found = ids.held(request.transactional_id, request.producer_id, request.producer_epoch)
    if found.state is State.ONGOING:
        _decide(ids, step, _unraised(found), committed=request.committed, version=FIRST_VERSION)
    elif (found.state, request.committed) not in _ENDED:
        raise _refusal(found, committed=request.committed)
    step.answer(call, EndTxnResponse())


def _end(ids: Ids, step: TransactionStep, call: ClientCall[EndTxnRequest]) -> None:
    request = call.request
    found = ids.find(request.transactional_id)
    if found.state in PREPARED:
        raise completing(found)
    repeated = _is_repeated(found, request)
    _check_holder(found, request, repeated=repeated)
    if found.state is State.ONGOING or (
        found.state in RESTING and not request.committed and not repeated
    ):
        ending = _raised(ids, found)
        found = _decide(ids, step, ending, committed=request.committed, version=OWN_EPOCHS)
    elif not repeated or (found.state, request.committed) not in _ENDED:
        raise _refusal(found, committed=request.committed)
    producer_id, epoch = found.after
    step.answer(call, EndTxnResponse(producer_id=producer_id, producer_epoch=epoch))


def _is_repeated(found: Transaction, request: EndTxnRequest) -> bool:
    """Whether the request repeats an end that has raised the epoch or used up the id."""
    says = (request.producer_id, request.producer_epoch + 1)
    if says == (found.producer_id, found.producer_epoch) and not found.is_kept:
        return True
    return (
        found.state in RESTING
        and request.producer_id == found.previous_producer_id
        and request.producer_epoch == LAST_EPOCH
        and found.producer_epoch == 0
    )


def _check_holder(found: Transaction, request: EndTxnRequest, *, repeated: bool) -> None:
    if repeated and found.state not in (State.EMPTY, State.ONGOING):
        return
    holder_id, epoch = found.holder
    if request.producer_id != holder_id and not repeated:
        raise InvalidProducerIdMapping(
            f"{found.transactional_id!r} has producer id {holder_id}, not {request.producer_id}"
        )
    if request.producer_epoch != epoch:
        raise ProducerFenced(
            f"{found.transactional_id!r} has epoch {epoch}, not {request.producer_epoch}"
        )


def _refusal(found: Transaction, *, committed: bool) -> InvalidTxnState:
    end = "committed" if committed else "aborted"
    return InvalidTxnState(f"{found.transactional_id!r} is {found.state.label} and cannot be {end}")


def _decide(
    ids: Ids, step: TransactionStep, ending: Transaction, *, committed: bool, version: int
) -> Transaction:
    """Append the decision about how a transaction ends, and send its markers."""
    decided = replace(
        ending,
        state=State.PREPARE_COMMIT if committed else State.PREPARE_ABORT,
        start_ms=ending.start_ms if ending.state is State.ONGOING else step.now_ms,
        client_version=version,
    )
    ids.change(step, decided)
    ids.send_markers(step, decided)
    return decided


def _unraised(found: Transaction) -> Transaction:
    """Return the ending transaction with the producer's own epoch, which the producer keeps."""
    holder_id, epoch = found.holder
    if holder_id == found.producer_id:
        return _succeeded_by(replace(found, producer_epoch=epoch), NO_PRODUCER_ID, NO_EPOCH)
    return found


def _raised(ids: Ids, found: Transaction) -> Transaction:
    """Return the ending transaction with an epoch above that of any writer.

    The producer gets this epoch. After the last epoch it gets another id.
    """
    holder_id, epoch = found.holder
    same = holder_id == found.producer_id
    raised = min((epoch if same else found.producer_epoch) + 1, EPOCH_MAX)
    ending = replace(found, producer_epoch=raised, last_producer_epoch=epoch)
    if epoch >= LAST_EPOCH:
        return _succeeded_by(ending, ids.producer_ids.take(), 0)
    if same:
        return _succeeded_by(ending, NO_PRODUCER_ID, NO_EPOCH)
    return _succeeded_by(ending, holder_id, epoch + 1)


def _succeeded_by(ending: Transaction, producer_id: int, epoch: int) -> Transaction:
    return replace(ending, next_producer_id=producer_id, next_producer_epoch=epoch)


def fence(ids: Ids, step: TransactionStep, found: Transaction) -> None:
    """Abort an open transaction under an epoch that its producer does not have.

    In version 2 the producer may still learn that epoch by InitProducerId, and go on (KIP-588).
    """
    ending = _raised(ids, found)
    version = OWN_EPOCHS
    if step.image.features.get(TRANSACTION_VERSION, 0) < OWN_EPOCHS:
        ending, version = replace(ending, last_producer_epoch=NO_EPOCH), FIRST_VERSION
    _decide(ids, step, ending, committed=False, version=version)


def complete(
    ids: Ids, step: TransactionStep, transactional_id: str, producer_id: int, epoch: int
) -> None:
    """Append that all partitions have the marker, unless that was already recorded."""
    found = ids.transactions.get(transactional_id)
    if found is None or found.state not in PREPARED or found.holder != (producer_id, epoch):
        return
    step.if_refused(put(ids.unmarked, transactional_id, None).revert)
    committed = found.state is State.PREPARE_COMMIT
    step.counted.append(Counted.COMMITTED if committed else Counted.ABORTED)
    after_id, after_epoch = found.after
    ids.change(
        step,
        replace(
            found,
            state=State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT,
            producer_id=after_id,
            producer_epoch=after_epoch,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_EPOCH,
            partitions={},
        ),
    )
