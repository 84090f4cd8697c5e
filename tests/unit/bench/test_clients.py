"""Output of the client programs, parsed or refused."""

import subprocess
from collections.abc import Sequence

import pytest

from bench import clients, jars
from bench.clients import ClientError, Load, ProducerSettings
from bench.jars import KafkaJars

PRODUCED = (
    "40211 records sent, 8042.2 records/sec (7.85 MB/sec), 101.2 ms avg latency, 300.0 ms max "
    "latency.\n100000 records sent, 25125.6 records/sec (24.54 MB/sec), 9.18 ms avg latency, "
    "150.00 ms max latency, 4 ms 50th, 31 ms 95th, 66 ms 99th, 80 ms 99.9th.\n"
)
CONSUMED = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
    "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec\n"
    "2026-01-01 00:00:00:000, 2026-01-01 00:00:01:000, 97.65, 97.65, 100000, 99502.4, 30, 975, "
    "100.1, 102564.1\n"
)
LOAD = Load("t", 2, 100_000, 1000)


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """Programs are not run: each answers with `answer`; the commands are kept."""
    commands: list[Sequence[str]] = []

    def run(command: Sequence[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, answer.code, answer.text, "oops")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(jars, "fetch", lambda: JARS)
    answer.code, answer.text = 0, ""
    return commands


class Answer:
    """The next program's output and exit code."""

    code: int = 0
    text: str = ""


answer = Answer()


class _Jars(KafkaJars):
    def command(self, main: str, *arguments: str, heap: str = "") -> list[str]:
        return ["java", main, *arguments]


JARS = _Jars.__new__(_Jars)


def test_producer_perf_is_read_by_its_last_line(says: list[Sequence[str]]) -> None:
    answer.text = PRODUCED
    rate = clients.java_produce("h:1", LOAD, ProducerSettings("all", 5, 65_536))
    assert rate == 25125.6
    assert "acks=all" in says[0]
    assert "batch.size=65536" in says[0]


def test_several_producers_share_the_records_and_add_up(says: list[Sequence[str]]) -> None:
    answer.text = PRODUCED
    load = Load("t", 2, 300_000, 1000)
    assert clients.java_produce("h:1", load, ProducerSettings("1", 5, 1), 3) == 3 * 25125.6
    assert [command[command.index("--num-records") + 1] for command in says] == ["100000"] * 3


def test_a_producer_that_sent_too_few_is_an_error(says: list[Sequence[str]]) -> None:
    answer.text = PRODUCED
    with pytest.raises(ClientError, match="no total of 100001"):
        clients.java_produce("h:1", Load("t", 1, 100_001, 10), ProducerSettings("1", 0, 1))


def test_consumer_perf_is_read_by_its_headings(says: list[Sequence[str]]) -> None:
    answer.text = CONSUMED
    assert clients.java_consume_in_group("h:1", LOAD, "g") == 99502.4


def test_end_to_end_counts_by_its_result_not_by_its_exit_code(says: list[Sequence[str]]) -> None:
    answer.code, answer.text = 1, "0\t9.1\nAvg latency: 0.7123 ms\nPercentiles: 50th = 0, …"
    assert clients.java_end_to_end("h:1", "t", 10, "1") == 0.7123


def test_our_own_clients_answer_in_json(says: list[Sequence[str]]) -> None:
    answer.text = 'noise\n{"records": 100000, "bytes": 1, "seconds": 2.0}\n'
    assert clients.java_consume("h:1", LOAD) == 50_000
    assert clients.librdkafka_consume("h:1", LOAD) == 50_000


def test_records_that_did_not_arrive_are_an_error(says: list[Sequence[str]]) -> None:
    answer.text = '{"records": 99999, "seconds": 2.0}'
    with pytest.raises(ClientError, match="99999 of 100000"):
        clients.librdkafka_consume("h:1", LOAD)


def test_a_failing_client_is_an_error_with_its_last_words(says: list[Sequence[str]]) -> None:
    answer.code, answer.text = 3, "so it goes"
    with pytest.raises(ClientError, match=r"so it goes"):
        clients.java_consume("h:1", LOAD)
