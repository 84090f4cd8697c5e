"""What a consumer does about answers that are wrong, partial or refusals."""

from collections.abc import Callable

import pytest

from raylog.client.consumer.fetcher import Fetcher
from raylog.client.io import run_blocking
from raylog.wire.errors import CorruptMessage
from raylog.wire.messages.fetch import FetchPartition, PartitionData
from raylog.wire.records import read_header
from tests.unit.client.test_consumer import ONE, ZERO, Logs, rig


def spoil(logs: Logs, partition: int, base_offset: int) -> None:
    """Let a partition's batch at an offset have another CRC than its header says."""

    def change(answer: PartitionData) -> None:
        data = bytearray(bytes(answer.records or b""))
        position = 0
        while position < len(data):
            header = read_header(data, position)
            position += header.size
            if header.base_offset == base_offset:
                data[position - 1] ^= 0xFF
        answer.records = bytes(data)

    edit(logs, partition, change)


def edit(logs: Logs, partition: int, change: Callable[[PartitionData], None]) -> None:
    """Change a partition's answers before they are sent."""
    read = logs.read

    def edited(broker: int, asked: FetchPartition, isolation: int) -> object:
        answer = read(broker, asked, isolation)
        if isinstance(answer, PartitionData) and answer.partition_index == partition:
            change(answer)
        return answer

    logs.read = edited  # type: ignore[method-assign]  # a broker that is not as it should be


def polled(consumer: Fetcher, polls: int, max_records: int = 1000) -> list[object]:
    """What each poll brought: partitions and offsets, or the failure that it raised."""
    seen: list[object] = []
    for _ in range(polls):
        try:
            groups = run_blocking(consumer.poll(200, max_records))
        except Exception as error:  # noqa: BLE001  # the test compares it
            seen.append(type(error))
            continue
        seen += [(group.partition, record.offset) for group in groups for record in group.records]
    return seen


def test_a_corrupt_batch_is_raised_until_the_application_seeks() -> None:
    logs, consumer = rig(end=30)
    spoil(logs, 0, 10)
    consumer.assign({ZERO: 0})
    assert polled(consumer, 3) == [*((0, i) for i in range(10)), CorruptMessage, CorruptMessage]
    assert run_blocking(consumer.position(ZERO)) == 10
    consumer.seek(ZERO, 20)
    assert polled(consumer, 1) == [(0, i) for i in range(20, 30)]


def test_records_of_other_partitions_are_handed_out_before_a_corrupt_batch_raises() -> None:
    logs, consumer = rig(end=10)
    spoil(logs, 1, 0)
    consumer.assign({ZERO: 0, ONE: 0})
    seen = polled(consumer, 4)
    assert [one for one in seen if one is not CorruptMessage] == [(0, i) for i in range(10)]
    assert seen.count(CorruptMessage) == 3


def test_a_batch_that_its_taker_refuses_is_given_again() -> None:
    class Taker:
        is_full = False
        record_count = 0

        def take(self, _: object, from_offset: int, *__: object) -> None:
            given.append(from_offset)
            raise CorruptMessage("refused")

    given: list[int] = []
    _, consumer = rig()
    consumer.assign({ZERO: 0})
    for _ in range(2):
        with pytest.raises(CorruptMessage, match="refused"):
            run_blocking(consumer.poll_into(Taker(), 200))
    assert given == [0, 0]
