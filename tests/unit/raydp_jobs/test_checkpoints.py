"""Contents of Spark's checkpoint files."""

import pytest

from raylog.client.cluster import TopicPartition
from raylog.raydp_jobs.checkpoints import BatchSource, NoCheckpoint, batch_source, kafka_offsets
from raylog.sink.batches import KafkaRange, OtherRange

HEAD = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1}\n'
FILES = {
    "metadata": '{"id":"5f2a"}',
    "sources/0/0": '\0v1\n{"in":{"0":5,"1":6}}',
    "offsets/0": HEAD + '{"in":{"0":10,"1":6}}\n{"logOffset":3}',
    "offsets/1": HEAD + '{"in":{"0":12,"1":6,"2":1}}\n{"logOffset":4}',
}


def offsets(*found: int, topic: str = "in") -> dict[TopicPartition, int]:
    return {TopicPartition(topic, partition): offset for partition, offset in enumerate(found)}


def test_the_first_batch_begins_where_the_source_did() -> None:
    found = batch_source(FILES.get, 0)
    sources = (KafkaRange(offsets(5, 6), offsets(10, 6)), OtherRange(None, '{"logOffset":3}'))
    assert found == BatchSource("5f2a", 0, sources)


def test_a_later_batch_begins_where_the_one_before_ended() -> None:
    """Also that of a source which is not Kafka, in its own words."""
    found = batch_source(FILES.get, 1)
    assert found.sources == (
        KafkaRange(offsets(10, 6), offsets(12, 6, 1)),
        OtherRange('{"logOffset":3}', '{"logOffset":4}'),
    )
    assert (found.starts, found.ends) == (offsets(10, 6), offsets(12, 6, 1))


@pytest.mark.parametrize("batch_id", [2, 7])
def test_a_checkpoint_that_does_not_know_the_batch_is_another_querys(batch_id: int) -> None:
    with pytest.raises(NoCheckpoint, match=f"expected batch {batch_id}"):
        batch_source(FILES.get, batch_id)


def test_a_checkpoint_of_another_query_is_refused() -> None:
    """Though it knows a batch of that number."""
    with pytest.raises(NoCheckpoint, match="belongs to query 5f2a, and batch 1 is of query 77"):
        batch_source(FILES.get, 1, running="77")
    assert batch_source(FILES.get, 1, running="5f2a").query_id == "5f2a"


def test_a_batch_whose_predecessor_is_gone_has_no_known_beginning() -> None:
    """The source's own beginning is that of the first batch alone."""
    files = {name: text for name, text in FILES.items() if name != "offsets/0"}
    found = batch_source(files.get, 1)
    assert found.sources == (
        KafkaRange({}, offsets(12, 6, 1)),
        OtherRange(None, '{"logOffset":4}'),
    )


def test_a_stream_that_is_used_twice_has_two_lines_and_one_file() -> None:
    files = {
        "metadata": FILES["metadata"],
        "sources/0/0": 'v1\n{"a":{"0":1}}',
        "sources/1/0": 'v1\n{"b":{"0":2}}',
        "offsets/0": HEAD + '{"a":{"0":10}}\n{"a":{"0":10}}\n{"b":{"0":20}}',
    }
    of_a = KafkaRange(offsets(1, topic="a"), offsets(10, topic="a"))
    of_b = KafkaRange(offsets(2, topic="b"), offsets(20, topic="b"))
    assert batch_source(files.get, 0).sources == (of_a, of_a, of_b)


def test_a_pattern_that_matches_nothing_yet_is_a_kafka_source() -> None:
    files = {**FILES, "offsets/1": HEAD + "{}\n-"}
    assert batch_source(files.get, 1).sources[0] == KafkaRange(offsets(10, 6), {})


@pytest.mark.parametrize(
    "line",
    ["-", "7", '{"logOffset":3}', "null", "[]", '{"shard":{"position":"x"}}', '{"a":{"0":"1"}}'],
)
def test_other_sources_have_no_kafka_offsets(line: str) -> None:
    assert kafka_offsets(line) == {}
