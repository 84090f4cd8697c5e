"""Offsets by timestamp, and the work that goes to each partition's leader. ListOffsets v1-11."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from raylog.client.cluster import TopicPartition, by_topic
from raylog.client.connection import Pending
from raylog.client.core import Core, is_retriable
from raylog.client.errors import ClientError, NotKafka, NotSupported
from raylog.wire.errors import ErrorCode, KafkaError, error_of
from raylog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from raylog.wire.schema import layout_of

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
"""The offset of the record with the largest timestamp (KIP-734), ListOffsets v7."""
_CONSUMER = -1

T = TypeVar("T")
R = TypeVar("R")
Answers = Iterable[tuple[TopicPartition, T | KafkaError]]
Outcome: TypeAlias = tuple[dict[TopicPartition, T], dict[TopicPartition, Exception]]
"""Answers by partition, and failures by partition."""


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

    async def ask(keys: Collection[TopicPartition]) -> Outcome[FoundOffset]:
        some = {key: wanted[key] for key in keys}
        return await find_offsets(core, some, read_committed=read_committed)

    return await _repeated(core, wanted, ask, timeout_ms)


async def find_offsets(
    core: Core, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
) -> Outcome[FoundOffset]:
    """As `list_offsets`, without a repeat: what was found, and what failed."""

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
    """Ask each leader about its partitions, all at once; repeat for those that may succeed later.

    The first failure that is for good is raised. Requests must be harmless to repeat. `at_most`
    bounds the version.
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
    """Ask again about what failed, until all is answered; raises a failure that is for good."""
    results: dict[TopicPartition, T] = {}
    left = set(keys)

    async def attempt() -> None:
        found, failed = await ask(left)
        results.update(found)
        left.difference_update(found)
        if failed:
            first = min(failed.values(), key=is_retriable)  # what no repeat cures comes first
            if is_retriable(first):
                await core.refresh({key.topic for key in left})
            raise first

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
    """Ask each leader about its partitions, all at once: what was answered, and what failed.

    Each partition is in one of the two: where a leader is not known, cannot be reached or speaks
    no version in the bounds, only its own partitions fail.
    """
    found: dict[TopicPartition, T] = {}
    failed: dict[TopicPartition, Exception] = {}
    asked: list[tuple[Pending[R], list[TopicPartition]]] = []
    for node_id, of_node in (await _by_leader(core, sorted(keys), failed)).items():
        try:
            pending = await _submit(core, node_id, request(of_node), expected, at_least, at_most)
        except (ClientError, KafkaError) as error:
            failed.update(dict.fromkeys(of_node, error))
        else:
            asked.append((pending, of_node))
    await core.answers([pending for pending, _ in asked])
    for pending, of_node in asked:
        try:
            told = answers(core.finished(pending))
        except ClientError as error:
            failed.update(dict.fromkeys(of_node, error))
        else:
            _sort(of_node, told, found, failed)
    return found, failed


def _sort(
    keys: list[TopicPartition],
    told: Answers[T],
    found: dict[TopicPartition, T],
    failed: dict[TopicPartition, Exception],
) -> None:
    """Add one broker's answers to what was found and what failed."""
    left = set(keys)
    for key, answer in told:
        if key not in left:
            continue  # not asked for, or told twice
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
    """Group partitions by their leaders; those without a known one are added to `failed`."""
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


async def _submit(
    core: Core,
    node_id: int,
    request: object,
    expected: type[R],
    at_least: int,
    at_most: int | None,
) -> Pending[R]:
    """Send a request; raises NotSupported where the broker speaks older versions only."""
    api_key = layout_of(type(request)).api_key
    assert api_key is not None, f"{type(request).__name__} is not a request"
    version = await core.version_on(node_id, api_key, at_most)
    if version < at_least:
        raise NotSupported(
            f"expected {api_key.name} v{at_least} or newer, broker {node_id} has v{version}"
        )
    return await core.submit(node_id, request, expected, at_most=at_most)
