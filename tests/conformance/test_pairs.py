"""Every client reads what another one wrote, byte for byte."""

import pytest

from tests.conformance.clients import CLIENTS
from tests.conformance.clients.base import ClientAdapter
from tests.conformance.conftest import Target
from tests.conformance.scenarios import (
    CODECS,
    KEEP,
    WriteOptions,
    assorted,
    differences,
    digest,
    end_offsets,
    stored,
)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", CLIENTS, ids=lambda client: client.name)
def test_every_client_reads_what_one_wrote(
    target: Target, topic: str, writer: ClientAdapter, codec: str
) -> None:
    writer.create_topic(target.bootstrap, topic, 4, KEEP)
    messages = [m for m in assorted(partitions=4, count=200) if writer.able_to_send(m)]
    writer.write(target.bootstrap, topic, messages, WriteOptions(codec=codec))
    expected = stored(messages)
    ends = end_offsets(expected)
    digests = {}
    for reader in CLIENTS:
        found = reader.read(target.bootstrap, topic, dict.fromkeys(ends, 0), ends)
        assert differences(found, expected) == [], f"read by {reader.name}"
        digests[reader.name] = digest(found)
    assert set(digests.values()) == {digest(expected)}
