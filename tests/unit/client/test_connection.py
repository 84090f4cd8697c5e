"""The protocol of one connection, byte by byte."""

import pytest

from raylog.client.connection import Connection
from raylog.client.errors import ConnectionLost, NotKafka
from raylog.wire.api import ApiKey
from raylog.wire.frame import encode_response
from raylog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from raylog.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.worlds.client.cluster import feed


def fetch_response(correlation_id: int, records: bytes) -> bytes:
    topic = FetchableTopicResponse(
        topic_id=b"i" * 16, partitions=[PartitionData(partition_index=3, records=records)]
    )
    response = FetchResponse(responses=[topic])
    return b"".join(encode_response(ApiKey.FETCH, 17, correlation_id, response))


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
@pytest.mark.parametrize("size", [0, 1000, 65_500, 65_532, 65_536, 300_000])
def test_answers_are_complete_whatever_the_pieces(step: int, size: int) -> None:
    connection = Connection("c")
    records = bytes(i & 0xFF for i in range(size))
    pendings = [connection.request(FetchRequest(), FetchResponse, 17, 9e9)[0] for _ in range(3)]
    stream = b"".join(fetch_response(i, records) for i in range(3))
    feed(connection, stream[:-1], step if size < 2000 else max(step, 1000))
    assert [pending.done for pending in pendings] == [True, True, False]
    feed(connection, stream[-1:])
    assert connection.ended is None
    for pending in pendings:
        found = pending.result().responses[0].partitions[0].records
        assert isinstance(found, memoryview)
        assert found == records


def test_requests_carry_rising_correlation_ids_and_the_client_id() -> None:
    connection = Connection("me")
    frames = [
        b"".join(
            bytes(chunk)
            for chunk in connection.request(MetadataRequest(), MetadataResponse, 12, 0)[1]
        )
        for _ in range(2)
    ]
    assert [frame[8:12] for frame in frames] == [b"\0\0\0\0", b"\0\0\0\1"]
    assert frames[0][14:16] == b"me"


def test_an_answer_to_another_request_ends_the_connection() -> None:
    connection = Connection("c")
    pending, _ = connection.request(FetchRequest(), FetchResponse, 17, 0)
    feed(connection, fetch_response(5, b""))
    with pytest.raises(NotKafka, match="expected the answer to request 0, found 5"):
        pending.result()
    with pytest.raises(NotKafka):
        connection.request(FetchRequest(), FetchResponse, 17, 0)


def test_something_that_is_not_kafka_is_named() -> None:
    connection = Connection("c")
    pending, _ = connection.request(FetchRequest(), FetchResponse, 17, 0)
    feed(connection, b"HTTP/1.1 400 Bad Request\r\n")
    with pytest.raises(NotKafka, match="Kafka listener"):
        pending.result()


def test_a_broken_answer_ends_the_connection() -> None:
    connection = Connection("c")
    pending, _ = connection.request(FetchRequest(), FetchResponse, 17, 0)
    feed(connection, b"\0\0\0\6\0\0\0\0\0\xff")
    with pytest.raises(NotKafka, match="expected an answer that can be decoded"):
        pending.result()


def test_the_end_fails_all_that_is_pending() -> None:
    connection = Connection("c")
    pendings = [connection.request(FetchRequest(), FetchResponse, 17, 0)[0] for _ in range(2)]
    connection.end(ConnectionLost("gone"))
    for pending in pendings:
        with pytest.raises(ConnectionLost):
            pending.result()
    assert not connection.pending


def test_an_unanswered_request_is_taken_back() -> None:
    connection = Connection("c")
    pending, _ = connection.request(FetchRequest(), FetchResponse, 17, 0)
    connection.unanswered(pending)
    assert not connection.pending
    assert not connection.is_overdue(1e9)


def test_the_oldest_request_decides_what_is_overdue() -> None:
    connection = Connection("c")
    connection.request(FetchRequest(), FetchResponse, 17, 100.0)
    connection.request(FetchRequest(), FetchResponse, 17, 50.0)
    assert not connection.is_overdue(99)
    assert connection.is_overdue(100)
