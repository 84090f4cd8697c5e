"""A broker's data with timestamps as clients claimed them: `make_timestamps data/<commit>`.

`timestamps.tar.xz` has topics of several segments. Their records are of the year 2200, but the
headers of their batches say that the largest timestamp is -1, 0 or another wrong one. Run it as
`python -m tests.compat.make_timestamps` with a commit that believed that; later builds must correct
it before they delete anything by age (`test_timestamps.py`).
"""

from __future__ import annotations

import argparse
import struct
import tarfile
import tempfile
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from crc32c import crc32c

from raylog.testing import EmbeddedBroker
from raylog.wire.compression import Codec
from raylog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from raylog.wire.records import Record, encode_batch
from tests.support.wire_client import WireClient

TOPIC = "claimed"
COMPACTED = "claimed-compacted"
TIME_MS = 7_258_118_400_000
"""2200-01-01."""
CLAIMS = [0] * 4 + [-1] * 2 + [TIME_MS - 1] * 3 + [2**62] * 3
CODECS = (Codec.NONE, Codec.LZ4, Codec.ZSTD)
RECORDS = 3
"""Of each batch, one ms apart; each batch is an hour after the one before."""
HOUR_MS = 3_600_000


def batches() -> list[bytes]:
    """What is produced, in this order."""
    made = []
    for number, claim in enumerate(CLAIMS):
        first = TIME_MS + number * HOUR_MS
        records = [
            Record(at, first + at, b"key %d" % number, bytes([number]) * 200_000, [])
            for at in range(RECORDS)
        ]
        data = bytearray(encode_batch(records, codec=CODECS[number % len(CODECS)]))
        struct.pack_into(">q", data, 35, claim)
        struct.pack_into(">I", data, 17, crc32c(data[21:]))
        made.append(bytes(data))
    return made


def _fill(bootstrap: str) -> None:
    settings = {"segment.bytes": "1048576", "message.timestamp.after.max.ms": str(2**63 - 1)}
    compacted = settings | {"cleanup.policy": "compact", "min.compaction.lag.ms": str(2**60)}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(TOPIC, 1, 1, config=settings), NewTopic(COMPACTED, 1, 1, config=compacted)]
    for future in admin.create_topics(topics).values():
        future.result(60)
    host, port = bootstrap.rsplit(":", 1)
    with WireClient(host, int(port)) as client:
        for topic in (TOPIC, COMPACTED):
            for data in batches():
                request = ProduceRequest(
                    acks=-1,
                    timeout_ms=30_000,
                    topic_data=[
                        TopicProduceData(
                            name=topic,
                            partition_data=[PartitionProduceData(index=0, records=data)],
                        )
                    ],
                )
                answer = client.ask(request, 9)
                assert answer.responses[0].partition_responses[0].error_code == 0, answer


def main() -> None:
    """Write the archive."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("out", type=Path)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) / "data"
        data.mkdir()
        with EmbeddedBroker(data=data) as cluster:
            _fill(cluster.bootstrap)
        with tarfile.open(given.out / "timestamps.tar.xz", "w:xz", preset=9) as archive:
            archive.add(data, ".")


if __name__ == "__main__":
    main()
