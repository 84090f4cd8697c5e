"""Offsets by timestamp, and the work that goes to each partition's leader. ListOffsets v1-11."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from raylog.client.cluster import TopicPartition, by_topic
from raylog.client.connection import Pending
from raylog.client.core import Core, is_retriable
from raylog.client.errors import ClientError
from raylog.wire.errors import ErrorCode, KafkaError, error_of
from raylog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
"""The offset of the record with the largest timestamp (KIP-734), ListOffsets v7."""
_CONSUMER = -1

T = TypeVar("T")
R = TypeVar("R")
Answers = Iterable[tuple[TopicPartition, T | KafkaError]]


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """Where a timestamp is: -1 and -1 if no record is as young."""

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
    """Offsets by partition: of the first record not older than a timestamp, or EARLIEST, LATEST.

    LATEST is the high watermark, or the last stable offset under `read_committed`. A timeout of 0
    lets the first failure be raised.
    """

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
                if answer.error_code != ErrorCode.NONE:
                    yield key, error_of(answer.error_code, str(key))
                else:
                    yield key, FoundOffset(answer.offset, answer.timestamp, answer.leader_epoch)

    return await ask_leaders(
        core, wanted, request, ListOffsetsResponse, answers, timeout_ms=timeout_ms
    )


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
    """Ask each leader about its partitions, all at once; repeat for those that may succeed later.

    The first failure that is for good is raised. Requests must be harmless to repeat. `at_most`
    bounds the version.
    """
    results: dict[TopicPartition, T] = {}
    left = set(keys)

    async def attempt() -> None:
        failures: list[Exception] = []
        for pending in await _ask_each_leader(core, sorted(left), request, expected, at_most):
            try:
                found = answers(core.finished(pending))
            except ClientError as error:
                failures.append(error)
                continue
            for key, answer in found:
                if isinstance(answer, KafkaError):
                    failures.append(answer)
                else:
                    results[key] = answer
                    left.discard(key)
        if failures:
            failures.sort(key=is_retriable)  # what no repeat cures comes first
            raise failures[0]

    async def attempt_refreshed() -> None:
        try:
            await attempt()
        except (KafkaError, ClientError) as error:
            if is_retriable(error):
                await core.refresh({key.topic for key in left})
            raise

    await core.repeat(attempt_refreshed, timeout_ms=timeout_ms)
    return results


async def _ask_each_leader(
    core: Core,
    keys: list[TopicPartition],
    request: Callable[[list[TopicPartition]], object],
    expected: type[R],
    at_most: int | None,
) -> list[Pending[R]]:
    """Send each leader its part and wait until all are answered or failed."""
    pendings = [
        await core.submit(node_id, request(of_node), expected, at_most=at_most)
        for node_id, of_node in (await core.by_leader(keys)).items()
    ]
    await core.answers(pendings)
    return pendings
