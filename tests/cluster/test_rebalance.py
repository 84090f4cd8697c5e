"""`raylog rebalance` as users run it, on three embedded brokers with skewed topics."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from raylog.cli.app import app
from raylog.cli.failures import EXIT_INTERRUPTED, CommandFailed
from raylog.cli.moving import Moves
from raylog.client import BlockingClient, TopicPartition
from raylog.testing import EmbeddedBroker

DEADLINE_S = 30
RECORD = bytes(10_000)


@pytest.fixture
def client() -> Iterator[BlockingClient]:
    """Of three brokers, on broker 0 all that is large and all leaders."""
    with EmbeddedBroker(brokers=3) as brokers, BlockingClient(brokers.bootstrap) as connected:
        run(connected, "topics", "create", "large", "--assignment", ",".join(["0:1"] * 6))
        run(connected, "topics", "create", "small", "--assignment", ",".join(["0"] * 6))
        with connected.producer() as producer:
            for number in range(600):
                producer.send("large", b"%d:" % number + RECORD, partition=number % 6)
                producer.send("small", b"%d" % number, partition=number % 6)
        yield connected


def run(client: BlockingClient, *arguments: str) -> str:
    """Run a command that succeeds; returns what it printed."""
    address = ",".join(f"{node.host}:{node.port}" for node in client.metadata([]).nodes.values())
    environment = {"RAYLOG_BOOTSTRAP": address, "COLUMNS": "200", "NO_COLOR": "1"}
    result = CliRunner().invoke(app, list(arguments), env=environment)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout if "--json" in arguments else result.output


def interrupted(_: Moves) -> str:
    """Instead of what a run says: somebody presses Ctrl-C."""
    raise KeyboardInterrupt


def throttled(client: BlockingClient) -> list[str]:
    """All throttles of moves there are."""
    found = []
    names = [("broker", str(node)) for node in client.metadata([]).nodes]
    for kind, name in [*names, ("topic", "large"), ("topic", "small")]:
        rows = json.loads(run(client, "configs", "describe", kind, name, "--json"))
        found += [f"{name} {row['key']}" for row in rows if "throttled" in row["key"]]
    return found


def test_skewed_brokers_become_even_while_they_are_written(client: BlockingClient) -> None:
    plan = json.loads(run(client, "rebalance", "--dry-run", "--json"))
    assert plan["bytes_to_copy"] > 0
    stalls: list[float] = []
    ended = threading.Event()

    def write() -> None:
        with client.producer() as producer:
            number = 0
            while not ended.is_set():
                began_s = time.monotonic()
                producer.send("small", b"more", partition=number % 6)
                producer.flush()
                stalls.append(time.monotonic() - began_s)
                number += 1

    writer = threading.Thread(target=write)
    writer.start()
    said = run(client, "rebalance", "--yes", "--throttle", "50000000")
    ended.set()
    writer.join(DEADLINE_S)
    assert "partitions moved as planned" in said
    assert "throttles removed" in said
    assert throttled(client) == []
    known = client.describe_partitions(["large", "small"])
    assert all(len(one.replicas) == len({*one.replicas}) for one in known.values())
    assert Counter(one.leader for one in known.values()) == {0: 4, 1: 4, 2: 4}
    assert all(one.leader == one.replicas[0] for one in known.values())
    stored = Counter[int]()
    for directory in client.describe_log_dirs():
        stored[directory.broker_id] += sum(one.size_bytes for one in directory.partitions)
    mean = stored.total() / 3
    assert all(abs(size - mean) <= 0.12 * mean for size in stored.values()), stored
    ends = client.list_offsets(dict.fromkeys(known, -1))
    assert sum(found.offset for found in ends.values()) == 1200 + len(stalls)
    assert max(stalls) <= 2, "a partition was unwritten for too long"
    assert "Nothing to move" in run(client, "rebalance", "--dry-run")


def test_an_interrupted_run_is_seen_called_off_and_run_again(
    client: BlockingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Moves, "describe", interrupted)
        with pytest.raises(CommandFailed, match="still move") as failed:
            run(client, "rebalance", "--yes", "--throttle", "1000")
    assert failed.value.failure.exit_code == EXIT_INTERRUPTED
    status = json.loads(run(client, "rebalance", "--status", "--json"))
    assert status["moves"]
    assert set(status["throttles"].values()) == {1000}
    assert "copies at most 1,000 bytes/s for the moves" in run(client, "rebalance", "--status")
    assert "already moving" in run(client, "rebalance", "--dry-run")
    with monkeypatch.context() as patched:
        patched.setattr(Moves, "describe", interrupted)
        with pytest.raises(CommandFailed, match="still move"):
            run(client, "rebalance", "--yes", "--throttle", "50000000")
    run(client, "rebalance", "--yes")
    assert throttled(client) == []
    assert client.list_reassignments() == {}
    assert "Nothing to move" in run(client, "rebalance", "--dry-run")


def test_moves_are_called_off_with_their_throttles(
    client: BlockingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Moves, "describe", interrupted)
    with pytest.raises(CommandFailed, match="still move"):
        run(client, "rebalance", "--yes", "--throttle", "1000")
    said = run(client, "rebalance", "--cancel")
    assert "called off" in said
    assert "throttles removed" in said
    assert throttled(client) == []
    assert "Nothing moves" in run(client, "rebalance", "--status")


@pytest.mark.long
def test_a_run_ends_where_its_moves_are_called_off_elsewhere(
    client: BlockingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe = Moves.describe

    def cancelled(moves: Moves) -> str:
        run(client, "rebalance", "--cancel")
        return describe(moves)

    monkeypatch.setattr(Moves, "describe", cancelled)
    with pytest.raises(CommandFailed, match="another command cancelled or changed"):
        run(client, "rebalance", "--yes", "--throttle", "1000")


def test_rebalance_can_be_limited_to_topics_and_moves(client: BlockingClient) -> None:
    def topics(*arguments: str) -> Counter[str]:
        found = json.loads(run(client, "rebalance", "--dry-run", "--json", *arguments))
        return Counter(one["topic"] for one in found["plan"]["partitions"])

    assert set(topics("--topics", "lar*")) == {"large"}
    assert set(topics("--exclude-topics", "large")) == {"small"}
    one = json.loads(run(client, "rebalance", "--dry-run", "--json", "--max-moves", "1"))
    assert one["partitions_to_copy"] == 1
    two = json.loads(run(client, "rebalance", "--dry-run", "--json", "--brokers", "0,1"))
    assert all({*part["replicas"]} <= {0, 1} for part in two["plan"]["partitions"])
    with pytest.raises(CommandFailed, match="no topic matches 'x'"):
        run(client, "rebalance", "--topics", "x")
    with pytest.raises(CommandFailed, match=r"expected live brokers \(0, 1, 2\), found 7"):
        run(client, "rebalance", "--brokers", "0,7")


def test_a_broker_is_drained_by_size(client: BlockingClient) -> None:
    address = ",".join(f"{node.host}:{node.port}" for node in client.metadata([]).nodes.values())
    run(client, "brokers", "drain", "0", "-b", address)
    held = client.describe_partitions()
    assert not any(0 in one.replicas for one in held.values())
    assert held[TopicPartition("large", 0)].replicas
