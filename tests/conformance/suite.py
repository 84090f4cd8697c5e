"""The scenarios that every client library must pass; each library has a test class for them."""

from typing import ClassVar

import pytest

from tests.conformance.clients.base import ClientAdapter, eventually
from tests.conformance.conftest import Target
from tests.conformance.scenarios import (
    CODECS,
    EVENT_TIME_MS,
    KEEP,
    LARGEST_ACCEPTED_VALUE_BYTES,
    Message,
    RefusedError,
    Stored,
    WriteOptions,
    ascending,
    assorted,
    differences,
    digest,
    end_offsets,
    single,
    stored,
)

MESSAGE_TOO_LARGE = 10
UNKNOWN_TOPIC_OR_PARTITION = 3
TOPIC_ALREADY_EXISTS = 36
OFFSET_OUT_OF_RANGE = 1
INVALID_PARTITIONS = 37
INVALID_CONFIG = 40


def assert_same(found: list[Stored], expected: list[Stored]) -> None:
    """Byte-identical, whatever the order between partitions."""
    assert differences(found, expected) == []
    assert digest(found) == digest(expected)


class ClientSuite:
    """Round trips, positions, limits and administration with one client."""

    client: ClassVar[ClientAdapter]

    def _create(self, target: Target, topic: str, partitions: int = 1, **configs: str) -> None:
        dotted = {key.replace("_", "."): value for key, value in configs.items()}
        self.client.create_topic(target.bootstrap, topic, partitions, KEEP | dotted)

    def _assorted(self, partitions: int) -> list[Message]:
        return [m for m in assorted(partitions) if self.client.able_to_send(m)]

    def _read_all(self, target: Target, topic: str, expected: list[Stored]) -> list[Stored]:
        ends = end_offsets(expected)
        return self.client.read(target.bootstrap, topic, dict.fromkeys(ends, 0), ends)

    @pytest.mark.parametrize("codec", CODECS)
    def test_round_trip_is_byte_identical(self, target: Target, topic: str, codec: str) -> None:
        self._create(target, topic, partitions=6)
        messages = self._assorted(partitions=6)
        acknowledged = self.client.write(
            target.bootstrap, topic, messages, WriteOptions(codec=codec)
        )
        expected = stored(messages)
        assert_same(acknowledged, expected)
        assert_same(self._read_all(target, topic, expected), expected)

    @pytest.mark.parametrize("acks", ["0", "1", "all"])
    def test_round_trip_without_idempotence(self, target: Target, topic: str, acks: str) -> None:
        self._create(target, topic, partitions=2)
        # With acks=0 a record sent before its leader serves is gone, on any broker.
        self.client.beginning_and_end(target.bootstrap, topic, [0, 1])
        messages = self._assorted(partitions=2)
        how = WriteOptions(idempotent=False, acks=acks)
        self.client.write(target.bootstrap, topic, messages, how)
        expected = stored(messages)
        assert_same(self._read_all(target, topic, expected), expected)

    def test_second_producer_appends_after_the_first(self, target: Target, topic: str) -> None:
        self._create(target, topic)
        first, second = ascending(30), ascending(20, step_ms=7)
        self.client.write(target.bootstrap, topic, first, WriteOptions())
        acknowledged = self.client.write(target.bootstrap, topic, second, WriteOptions())
        expected = stored([*first, *second])
        assert_same(acknowledged, expected[30:])
        assert_same(self._read_all(target, topic, expected), expected)

    def test_many_small_batches(self, target: Target, topic: str) -> None:
        self._create(target, topic, partitions=3)
        messages = [
            Message(n % 3, EVENT_TIME_MS + n, b"%d" % n, b"x" * (n % 50)) for n in range(3_000)
        ]
        how = WriteOptions(linger_ms=0, request_bytes_max=2_000)
        self.client.write(target.bootstrap, topic, messages, how)
        expected = stored(messages)
        assert_same(self._read_all(target, topic, expected), expected)

    @pytest.mark.parametrize("codec", ["none", "zstd"])
    def test_reads_from_the_middle_of_a_batch(self, target: Target, topic: str, codec: str) -> None:
        self._create(target, topic)
        messages = ascending(100)
        self.client.write(target.bootstrap, topic, messages, WriteOptions(codec=codec))
        expected = stored(messages)[37:63]
        assert_same(self.client.read(target.bootstrap, topic, {0: 37}, {0: 63})[:26], expected)

    def test_seek_back_and_forth(self, target: Target, topic: str) -> None:
        self._create(target, topic)
        messages = ascending(50)
        self.client.write(target.bootstrap, topic, messages, WriteOptions())
        for offset in (49, 10):
            found = self.client.read_after_seek(target.bootstrap, topic, offset, 50)
            assert_same(found, stored(messages)[offset:])

    def test_reading_past_the_end_is_out_of_range(self, target: Target, topic: str) -> None:
        self._create(target, topic)
        self.client.write(target.bootstrap, topic, ascending(5), WriteOptions())
        with pytest.raises(Exception, match=r"(?i)out ?of ?range|auto.offset.reset|no reset"):
            self.client.read(target.bootstrap, topic, {0: 1_000}, {0: 1_001})

    @pytest.mark.parametrize("codec", ["none", "lz4"])
    def test_offsets_for_times(self, target: Target, topic: str, codec: str) -> None:
        self._create(target, topic)
        messages = ascending(40, step_ms=1_000)
        self.client.write(target.bootstrap, topic, messages, WriteOptions(codec=codec))

        def at(milliseconds_after: int) -> int | None:
            return self.client.offset_for_time(
                target.bootstrap, topic, EVENT_TIME_MS + milliseconds_after
            )

        assert at(-1) == 0
        assert at(0) == 0
        assert at(12_000) == 12
        assert at(12_001) == 13
        assert at(39_000) == 39
        assert at(39_001) is None

    def test_beginning_and_end_offsets(self, target: Target, topic: str) -> None:
        self._create(target, topic, partitions=3)
        messages = [Message(1, EVENT_TIME_MS, b"k", b"v")] * 4
        self.client.write(target.bootstrap, topic, messages, WriteOptions())
        found = self.client.beginning_and_end(target.bootstrap, topic, [0, 1, 2])
        assert found == {0: (0, 0), 1: (0, 4), 2: (0, 0)}

    @pytest.mark.parametrize("codec", CODECS)
    def test_one_mebibyte_record_where_the_topic_allows(
        self, target: Target, topic: str, codec: str
    ) -> None:
        self._create(target, topic, max_message_bytes=str(2 * 1_048_576))
        messages = [single(1_048_576), single(100)]
        self.client.write(target.bootstrap, topic, messages, WriteOptions(codec=codec))
        expected = stored(messages)
        assert_same(self._read_all(target, topic, expected), expected)

    def test_largest_batch_at_defaults(self, target: Target, topic: str) -> None:
        self._create(target, topic)
        messages = [single(LARGEST_ACCEPTED_VALUE_BYTES)]
        self.client.write(target.bootstrap, topic, messages, WriteOptions())
        expected = stored(messages)
        assert_same(self._read_all(target, topic, expected), expected)

    @pytest.mark.parametrize("idempotent", [True, False])
    def test_one_byte_more_is_refused(
        self, target: Target, topic: str, *, idempotent: bool
    ) -> None:
        self._create(target, topic)
        with pytest.raises(RefusedError) as refused:
            self.client.write(
                target.bootstrap,
                topic,
                [single(LARGEST_ACCEPTED_VALUE_BYTES + 1)],
                WriteOptions(idempotent=idempotent),
            )
        assert refused.value.code == MESSAGE_TOO_LARGE
        assert self.client.beginning_and_end(target.bootstrap, topic, [0]) == {0: (0, 0)}

    def test_create_list_describe_delete(self, target: Target, topic: str) -> None:
        self._create(target, topic, partitions=5)
        assert topic in self.client.list_topics(target.bootstrap)
        shape = self.client.describe_topic(target.bootstrap, topic)
        assert shape.partitions == [0, 1, 2, 3, 4]
        if target.brokers:
            assert len(set(shape.leaders.values())) == target.brokers
        self.client.delete_topic(target.bootstrap, topic)
        eventually(lambda: topic not in self.client.list_topics(target.bootstrap), "topic is gone")
        if not self.client.describing_creates:
            with pytest.raises(RefusedError) as refused:
                self.client.describe_topic(target.bootstrap, topic)
            assert refused.value.code == UNKNOWN_TOPIC_OR_PARTITION

    def test_a_topic_recreated_is_empty(self, target: Target, topic: str) -> None:
        self._create(target, topic)
        self.client.write(target.bootstrap, topic, ascending(9), WriteOptions())
        self.client.delete_topic(target.bootstrap, topic)
        eventually(lambda: topic not in self.client.list_topics(target.bootstrap), "topic is gone")
        self._create(target, topic)
        messages = ascending(3, step_ms=5)
        self.client.write(target.bootstrap, topic, messages, WriteOptions())
        expected = stored(messages)
        assert_same(self._read_all(target, topic, expected), expected)

    def test_creating_twice_is_refused(self, target: Target, topic: str) -> None:
        self._create(target, topic)
        with pytest.raises(RefusedError) as refused:
            self._create(target, topic)
        assert refused.value.code == TOPIC_ALREADY_EXISTS

    def test_create_partitions(self, target: Target, topic: str) -> None:
        self._create(target, topic, partitions=2)
        self.client.create_partitions(target.bootstrap, topic, 4)
        eventually(
            lambda: self.client.describe_topic(target.bootstrap, topic).partitions == [0, 1, 2, 3],
            "four partitions",
        )
        messages = self._assorted(partitions=4)
        self.client.write(target.bootstrap, topic, messages, WriteOptions())
        expected = stored(messages)
        assert_same(self._read_all(target, topic, expected), expected)

    def test_fewer_partitions_are_refused(self, target: Target, topic: str) -> None:
        self._create(target, topic, partitions=3)
        with pytest.raises(RefusedError) as refused:
            self.client.create_partitions(target.bootstrap, topic, 2)
        assert refused.value.code == INVALID_PARTITIONS

    def test_describe_and_alter_configs(self, target: Target, topic: str) -> None:
        self._create(target, topic, segment_bytes="1048576")
        before = self.client.describe_configs(target.bootstrap, topic)
        assert before["segment.bytes"] == "1048576"
        assert before["retention.ms"] == "-1"
        assert before["max.message.bytes"] == "1048588"
        assert before["cleanup.policy"] == "delete"
        self.client.alter_config(target.bootstrap, topic, "max.message.bytes", "5000")
        eventually(
            lambda: (
                self.client.describe_configs(target.bootstrap, topic)["max.message.bytes"] == "5000"
            ),
            "the change is described",
        )
        with pytest.raises(RefusedError) as refused:
            self.client.write(target.bootstrap, topic, [single(6_000)], WriteOptions())
        assert refused.value.code == MESSAGE_TOO_LARGE

    def test_an_unknown_config_is_refused(self, target: Target, topic: str) -> None:
        with pytest.raises(RefusedError) as refused:
            self._create(target, topic, no_such_key="1")
        assert refused.value.code == INVALID_CONFIG

    def test_delete_records(self, target: Target, topic: str) -> None:
        self._create(target, topic, partitions=2)
        messages = [
            Message(p, EVENT_TIME_MS + n, b"%d" % n, b"v") for n in range(20) for p in (0, 1)
        ]
        self.client.write(target.bootstrap, topic, messages, WriteOptions())
        self.client.delete_records(target.bootstrap, topic, {0: 13})
        found = self.client.beginning_and_end(target.bootstrap, topic, [0, 1])
        assert found == {0: (13, 20), 1: (0, 20)}
        expected = [r for r in stored(messages) if r.partition == 1 or r.offset >= 13]
        assert_same(
            self.client.read(target.bootstrap, topic, {0: 13, 1: 0}, {0: 20, 1: 20}), expected
        )

    def test_deleting_records_past_the_end_is_refused(self, target: Target, topic: str) -> None:
        self._create(target, topic)
        self.client.write(target.bootstrap, topic, ascending(5), WriteOptions())
        with pytest.raises(RefusedError) as refused:
            self.client.delete_records(target.bootstrap, topic, {0: 6})
        assert refused.value.code == OFFSET_OUT_OF_RANGE
