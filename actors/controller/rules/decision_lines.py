"""Describes what records decide, before they are replayed, in one log line each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from raylog.actors.controller.rules.unclean import unclean_elections
from raylog.actors.decisions import BROKER, CONTROLLER, ELECTION, FENCING, ISR, UNCLEAN, Decided
from raylog.actors.metadata.image import MetadataImage, PartitionState
from raylog.actors.metadata.records import (
    NO_LEADER,
    BrokerFenced,
    BrokerRegistered,
    BrokerShuttingDown,
    BrokerUnfenced,
    BrokerUnregistered,
    LeaderChanged,
    PartitionChanged,
    Record,
    VotersChanged,
)

LINES_MAX = 50
"""Maximum lines of one kind per decision; one more line counts the rest."""


def decisions_of(image: MetadataImage, records: Sequence[Record]) -> list[Decided]:
    """Describe what the records decide, in order, with unclean elections first."""
    decisions = [Decided(UNCLEAN, election) for election in unclean_elections(image, records)]
    counts: Counter[str] = Counter()
    for record in records:
        if isinstance(record, PartitionChanged) and _is_full(counts, record):
            continue
        for one in _decided(image, record):
            counts[one.kind] += 1
            if counts[one.kind] <= LINES_MAX:
                decisions.append(one)
    decisions += [
        Decided(kind, f"{count - LINES_MAX} more in the same decision")
        for kind, count in counts.items()
        if count > LINES_MAX
    ]
    return decisions


def _is_full(counts: Counter[str], record: PartitionChanged) -> bool:
    """Whether the limit for this kind of line is reached; if so, count the change."""
    kind = ISR if record.leader is None else ELECTION
    if counts[kind] < LINES_MAX:
        return False
    counts[kind] += kind == ELECTION or record.isr is not None
    return True


def _decided(image: MetadataImage, record: Record) -> Iterator[Decided]:
    match record:
        case PartitionChanged():
            yield from _partition(image, record)
        case LeaderChanged(controller_epoch, controller):
            yield Decided(CONTROLLER, f"{controller} leads in controller epoch {controller_epoch}")
        case VotersChanged(voters):
            yield Decided(CONTROLLER, f"the voters are brokers {_ids(one for one, _ in voters)}")
        case BrokerFenced(broker_id, broker_epoch):
            yield _broker(FENCING, broker_id, f"is fenced, broker epoch {broker_epoch}")
        case BrokerUnfenced(broker_id, broker_epoch):
            yield _broker(FENCING, broker_id, f"is unfenced, broker epoch {broker_epoch}")
        case BrokerRegistered(broker_id, broker_epoch, host, port):
            text = f"registered as {host}:{port}, broker epoch {broker_epoch}"
            yield _broker(BROKER, broker_id, text)
        case BrokerShuttingDown(broker_id, broker_epoch):
            yield _broker(BROKER, broker_id, f"shuts down, broker epoch {broker_epoch}")
        case BrokerUnregistered(broker_id, broker_epoch):
            yield _broker(BROKER, broker_id, f"is unregistered, broker epoch {broker_epoch}")
        case _:
            return


def _broker(kind: str, broker_id: int, text: str) -> Decided:
    return Decided(kind, f"broker {broker_id} {text}", f"broker {broker_id}")


def _partition(image: MetadataImage, record: PartitionChanged) -> Iterator[Decided]:
    topic = image.topics.get(record.topic_id)
    state = image.partition(record.topic_id, record.partition)
    if topic is None or state is None:
        return
    name = f"{topic.name}-{record.partition}"
    if record.leader is not None:
        yield Decided(ELECTION, f"{name}: {_election(state, record)}", name)
    elif record.isr is not None and set(record.isr) != set(state.isr):
        text = f"{_isr(state, record)}, leader {state.leader}, partition epoch {_next(state)}"
        yield Decided(ISR, f"{name}: {text}", name)


def _election(state: PartitionState, record: PartitionChanged) -> str:
    leader = "nobody" if record.leader == NO_LEADER else f"broker {record.leader}"
    before = "nobody" if state.leader == NO_LEADER else f"broker {state.leader}"
    return (
        f"{leader} leads in epoch {state.leader_epoch + 1} after {before}, "
        f"{_isr(state, record)}, partition epoch {_next(state)}"
    )


def _isr(state: PartitionState, record: PartitionChanged) -> str:
    after = state.isr if record.isr is None else record.isr
    if set(after) == set(state.isr):
        return f"in sync {_ids(state.isr)}"
    return f"in sync {_ids(after)} after {_ids(state.isr)}"


def _next(state: PartitionState) -> int:
    return state.partition_epoch + 1


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, sorted(brokers))) or "nobody"
