"""kcat (another version of librdkafka) against a broker, if it is installed."""

import pytest

from tests.conformance.clients.aio import AiokafkaClient
from tests.conformance.conftest import Target
from tests.conformance.scenarios import CODECS, EVENT_TIME_MS, KEEP, Message, WriteOptions
from tests.conformance.tools import kcat, run

other = AiokafkaClient()


@pytest.mark.parametrize("codec", CODECS)
def test_writes_what_others_read(target: Target, topic: str, codec: str) -> None:
    program = kcat()
    other.create_topic(target.bootstrap, topic, 1)
    lines = [b"key%d|value %d" % (n, n) for n in range(100)] + [b"last|"]
    run(
        program,
        *("-P", "-b", target.bootstrap, "-t", topic, "-p", "0", "-K", "|", "-Z"),
        *("-H", "trace=1", "-z", codec, "-X", "enable.idempotence=true"),
        given=b"\n".join(lines) + b"\n",
    )
    found = other.read(target.bootstrap, topic, {0: 0}, {0: 101})
    expected = [(b"key%d" % n, b"value %d" % n) for n in range(100)] + [(b"last", None)]
    assert [(r.key, r.value) for r in found] == expected
    assert {r.headers for r in found} == {(("trace", b"1"),)}


@pytest.mark.parametrize("codec", CODECS)
def test_reads_what_others_wrote(target: Target, topic: str, codec: str) -> None:
    program = kcat()
    other.create_topic(target.bootstrap, topic, 1, KEEP)
    messages = [Message(0, EVENT_TIME_MS + n, b"k%d" % n, b"v%d" % n) for n in range(50)]
    other.write(target.bootstrap, topic, messages, WriteOptions(codec=codec))
    said = run(
        program,
        *("-C", "-b", target.bootstrap, "-t", topic, "-p", "0", "-o", "10", "-e", "-q"),
        *("-f", "%o %T %k %s\n"),
    )
    assert said.decode().splitlines() == [
        f"{n} {EVENT_TIME_MS + n} k{n} v{n}" for n in range(10, 50)
    ]
