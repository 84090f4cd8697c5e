"""What Spark's checkpoint files say."""

import pytest

from raylog.client.cluster import TopicPartition
from raylog.raydp_jobs.checkpoints import BatchSource, NoCheckpoint, batch_source, kafka_offsets

HEAD = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1}\n'
FILES = {
    "metadata": '{"id":"5f2a"}',
    "sources/0/0": '\0v1\n{"in":{"0":5,"1":6}}',
    "offsets/0": HEAD + '{"in":{"0":10,"1":6}}\n{"logOffset":3}',
    "offsets/1": HEAD + '{"in":{"0":12,"1":6,"2":1}}\n-',
}


def offsets(*found: int) -> dict[TopicPartition, int]:
    return {TopicPartition("in", partition): offset for partition, offset in enumerate(found)}


def test_the_first_batch_begins_where_the_source_did() -> None:
    assert batch_source(FILES.get, 0) == BatchSource("5f2a", offsets(5, 6), offsets(10, 6))


def test_a_later_batch_begins_where_the_one_before_ended() -> None:
    assert batch_source(FILES.get, 1) == BatchSource("5f2a", offsets(10, 6), offsets(12, 6, 1))


@pytest.mark.parametrize("batch_id", [2, 7])
def test_a_checkpoint_that_does_not_know_the_batch_is_another_querys(batch_id: int) -> None:
    with pytest.raises(NoCheckpoint, match=f"expected batch {batch_id}"):
        batch_source(FILES.get, batch_id)


@pytest.mark.parametrize("line", ["-", "7", '{"logOffset":3}', "null", "[]"])
def test_other_sources_have_no_kafka_offsets(line: str) -> None:
    assert kafka_offsets(line) == {}
