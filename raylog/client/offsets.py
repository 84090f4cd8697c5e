"""Offsets by timestamp (ListOffsets v1-11), and requests to partition leaders."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from raylog.client.cluster import TopicPartition, by_topic
from raylog.client.connection import Pending
from raylog.client.core import Core
from raylog.client.errors import ClientError, NotKafka
from raylog.client.refusals import refusal
from raylog.client.retries import is_retriable, worst
from raylog.wire.errors import KafkaError
from raylog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
"""Asks for the offset of the record with the largest timestamp (KIP-734, ListOffsets v7)."""
_CONSUMER = -1

T = TypeVar("T")
R = TypeVar("R")
Answers = Iterable[tuple[TopicPartition, T | KafkaError]]
Outcome: TypeAlias = tuple[dict[TopicPartition, T], dict[TopicPartition, Exception]]
"""Answers and failures, each by partition."""


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """The record found for a timestamp; -1 and -1 if no record is that new."""

    offset: int
    timestamp_ms: int
    leader_epoch: int = -1


async def list_offsets(
    core: Core,
    wanted: Mapping[TopicPartition, int],
    *,
    read_committed: bool = False,
    timeout_ms: float | None = None,
) -> dict[TopicPartition, FoundOffset]:
    """Return offsets by partition: of the first record since a timestamp, or EARLIEST, LATEST.

    LATEST is the high watermark, or the last stable offset under `read_committed`. With a timeout
    of 0 the first failure is raised.
    """

    async def ask(keys: Collection[TopicPartition]) -> Outcome[FoundOffset]:
        some = {key: wanted[key] for key in keys}
        return await find_offsets(core, some, read_committed=read_committed)

    return await _repeated(core, wanted, ask, timeout_ms)


async def find_offsets(
    core: Core, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
) -> Outcome[FoundOffset]:
    """Make one attempt at `list_offsets`; return what was found and what failed."""

    def request(keys: list[TopicPartition]) -> ListOffsetsRequest:
        return ListOffsetsRequest(
            replica_id=_CONSUMER,
            isolation_level=int(read_committed),
            timeout_ms=core.settings.request_timeout_ms,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(partition_index=key.partition, timestamp=wanted[key])
                        for key in of_topic
                    ],
                )
                for topic, of_topic in by_topic(keys).items()
            ],
        )

    def answers(response: ListOffsetsResponse) -> Answers[FoundOffset]:
        for topic in response.topics:
            for answer in topic.partitions:
                key = TopicPartition(topic.name, answer.partition_index)
                found = FoundOffset(answer.offset, answer.timestamp, answer.leader_epoch)
                yield key, refusal(answer.error_code, key) or found

    return await ask_each_leader(core, wanted, request, ListOffsetsResponse, answers)


async def ask_leaders(
    core: Core,
    keys: Iterable[TopicPartition],
    request: Callable[[list[TopicPartition]], object],
    expected: type[R],
    answers: Callable[[R], Answers[T]],
    *,
    at_most: int | None = None,
    timeout_ms: float | None = None,
) -> dict[TopicPartition, T]:
    """Ask all leaders about their partitions in parallel; retry partitions with retriable errors.

    Raises an error that is not retriable. Requests must be safe to repeat. `at_most` bounds the
    version.
    """

    async def ask(left: Collection[TopicPartition]) -> Outcome[T]:
        return await ask_each_leader(core, left, request, expected, answers, at_most=at_most)

    return await _repeated(core, keys, ask, timeout_ms)


async def _repeated(
    core: Core,
    keys: Iterable[TopicPartition],
    ask: Callable[[Collection[TopicPartition]], Awaitable[Outcome[T]]],
    timeout_ms: float | None,
) -> dict[TopicPartition, T]:
    """Retry failed partitions until all are answered; raises an error that is not retriable."""
    results: dict[TopicPartition, T] = {}
    left = set(keys)

    async def attempt() -> None:
        found, failed = await ask(left)
        results.update(found)
        left.difference_update(found)
        failure = worst(failed.values())
        if failure is not None:
            if is_retriable(failure):
                await core.refresh({key.topic for key in left})
            raise failure

    await core.repeat(attempt, timeout_ms=timeout_ms)
    return results


async def ask_each_leader(
    core: Core,
    keys: Collection[TopicPartition],
    request: Callable[[list[TopicPartition]], object],
    expected: type[R],
    answers: Callable[[R], Answers[T]],
    *,
    at_least: int = 0,
    at_most: int | None = None,
) -> Outcome[T]:
    """Ask all leaders about their partitions in parallel; return answers and failures.

    Each partition is in one of the two. If a leader is unknown, cannot be reached or supports no
    version within the bounds, only its own partitions fail.
    """
    found: dict[TopicPartition, T] = {}
    failed: dict[TopicPartition, Exception] = {}
    asked: list[tuple[Pending[R], list[TopicPartition]]] = []
    for node_id, of_node in (await _by_leader(core, sorted(keys), failed)).items():
        try:
            pending = await core.submit(
                node_id, request(of_node), expected, at_most=at_most, at_least=at_least
            )
        except (ClientError, KafkaError) as error:
            failed.update(dict.fromkeys(of_node, error))
        else:
            asked.append((pending, of_node))
    await core.answers([pending for pending, _ in asked])
    for pending, of_node in asked:
        try:
            node_answers = answers(core.finished(pending))
        except ClientError as error:
            failed.update(dict.fromkeys(of_node, error))
        else:
            _sort(of_node, node_answers, found, failed)
    return found, failed


def _sort(
    keys: list[TopicPartition],
    node_answers: Answers[T],
    found: dict[TopicPartition, T],
    failed: dict[TopicPartition, Exception],
) -> None:
    """Add one broker's answers to the found and the failed partitions."""
    left = set(keys)
    for key, answer in node_answers:
        if key not in left:
            continue  # not asked for, or a repeated answer
        left.discard(key)
        if isinstance(answer, KafkaError):
            failed[key] = answer
        else:
            found[key] = answer
    for key in sorted(left):
        failed[key] = NotKafka(f"expected an answer about {key}, found none")


async def _by_leader(
    core: Core, keys: list[TopicPartition], failed: dict[TopicPartition, Exception]
) -> dict[int, list[TopicPartition]]:
    """Group partitions by leader; add those without a known leader to `failed`."""
    grouped: dict[int, list[TopicPartition]] = {}
    try:
        await core.know(key.topic for key in keys)
    except (ClientError, KafkaError) as error:
        failed.update(dict.fromkeys(keys, error))
        return grouped
    for key in keys:
        try:
            grouped.setdefault(core.cluster.leader_of(key), []).append(key)
        except KafkaError as error:
            failed[key] = error
    return grouped
