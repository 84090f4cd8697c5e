"""A client that closes its sending side after a request still gets the answer, as from Kafka."""

from __future__ import annotations

import socket

from raylog.client.channel import api_versions_request
from raylog.testing import EmbeddedBroker
from raylog.wire.api import ApiKey
from raylog.wire.frame import decode_response, encode_request
from raylog.wire.messages.metadata import MetadataRequest, MetadataResponse


def test_answers_follow_a_half_close(raylog_broker: EmbeddedBroker) -> None:
    host, _, port = raylog_broker.bootstrap.partition(":")
    requests = [
        encode_request(ApiKey.API_VERSIONS, 3, 1, "half", api_versions_request()),
        encode_request(ApiKey.METADATA, 12, 2, "half", MetadataRequest(topics=None)),
    ]
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"".join(bytes(part) for parts in requests for part in parts))
        connection.shutdown(socket.SHUT_WR)
        answers = b""
        while data := connection.recv(65_536):
            answers += data
    first = 4 + int.from_bytes(answers[:4], "big")
    correlation_id, response = decode_response(ApiKey.METADATA, 12, answers[first + 4 :])
    assert correlation_id == 2
    assert isinstance(response, MetadataResponse)
    assert [broker.port for broker in response.brokers] == [int(port)]
