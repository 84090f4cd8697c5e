"""`raylog brokers restart`: what is refused, which brokers restart, what it waits for."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
import typer

from raylog.actors.cluster import BrokerPlan
from raylog.actors.endpoints import Endpoint
from raylog.cli import restarting
from raylog.cli.failures import EXIT_UNREACHABLE, CommandFailed, Failure
from raylog.cli.local_cluster import _recorded
from raylog.cli.restarting import Restarts, _chosen, _is_live, _until_in_sync, restart
from raylog.client import (
    BlockingClient,
    ClusterDescription,
    PartitionReplicas,
    TopicPartition,
)
from raylog.client.admin.topics import BrokerView
from raylog.cluster_record import BrokerRecord, ClusterRecord, read_record


class FakeClient(BlockingClient):
    """Reports partitions: one answer after another, the last one repeatedly."""

    def __init__(self, *answers: Sequence[PartitionReplicas]) -> None:
        self.answers = list(answers)

    def describe_cluster(self) -> ClusterDescription:
        brokers = [BrokerView(one, "h", 1, None, is_fenced=one == 2) for one in (1, 2)]
        return ClusterDescription("c", 1, brokers)

    def describe_partitions(self, topics: object = None) -> dict[TopicPartition, PartitionReplicas]:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return {one.key: one for one in answer}


def partition(index: int, replicas: list[int], isr: list[int]) -> PartitionReplicas:
    return PartitionReplicas("t", index, isr[0], 1, replicas, isr)


def test_a_record_tells_how_brokers_were_started(tmp_path: Path) -> None:
    broker = BrokerRecord(1, "/data/broker-1", {"listeners": "PLAINTEXT://127.0.0.1:9093"}, "node")
    record = ClusterRecord("id", [1], ["127.0.0.1:9093"], "ray", None, "secret", [broker])
    record.write(tmp_path)
    assert read_record(tmp_path) == record


@pytest.mark.parametrize(
    ("listening", "advertised", "noted"),
    [
        ("127.0.0.1:0", None, "127.0.0.1:7"),
        ("127.0.0.1:9092", None, "127.0.0.1:9092"),
        ("0.0.0.0:0", "out:0", "0.0.0.0:7"),
        ("0.0.0.0:0", "out:19092", "0.0.0.0:7"),
        ("0.0.0.0:9092", "out:19092", "0.0.0.0:9092"),
        ("::1:0", None, "[::1]:7"),
    ],
)
def test_a_broker_keeps_the_port_that_it_got(
    listening: str, advertised: str | None, noted: str
) -> None:
    settings = {"listeners": f"PLAINTEXT://{listening}"}
    if advertised is not None:
        settings["advertised.listeners"] = f"PLAINTEXT://{advertised}"
    bound = [Endpoint("PLAINTEXT", "whatever", 7 if listening.endswith(":0") else 9092)]
    record = _recorded(BrokerPlan(0, Path("/data/broker-0"), settings), bound)
    assert record.settings == settings | {"listeners": f"PLAINTEXT://{noted}"}


def test_no_cluster_is_no_cluster(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="no cluster is running") as failed:
        restart([1], data=tmp_path)
    assert failed.value.failure.exit_code == EXIT_UNREACHABLE


@pytest.mark.parametrize(("hint", "expected"), [(None, ""), ("Look there", "Look there. ")])
def test_a_failure_tells_how_to_continue(
    monkeypatch: pytest.MonkeyPatch, hint: str | None, expected: str
) -> None:
    def fail(*_: object) -> None:
        raise CommandFailed("no answer", hint, EXIT_UNREACHABLE)

    restarts = Restarts([4, 5], ["h:1"], lambda *_: None, lambda: None, "--address auto")
    monkeypatch.setattr(restarting, "_restarts", lambda *_: nullcontext(restarts))
    monkeypatch.setattr(restarting, "_restart_one", fail)
    with pytest.raises(CommandFailed) as failed:
        restart(every=True)
    assert failed.value.failure == Failure(
        "no answer",
        f"{expected}Continue with: raylog brokers restart --all --from 4 --address auto",
        EXIT_UNREACHABLE,
    )


def test_brokers_are_taken_in_the_order_given() -> None:
    assert _chosen([2, 0, 2], [0, 1, 2], every=False) == [2, 0]
    assert _chosen([], [0, 1, 2], every=True) == [0, 1, 2]


@pytest.mark.parametrize(("asked", "every"), [([], False), ([1], True), ([7], False)])
def test_restart_requires_valid_broker_ids_or_all(asked: list[int], every: bool) -> None:
    with pytest.raises(typer.BadParameter):
        _chosen(asked, [0, 1, 2], every=every)


def test_restart_waits_only_for_replicas_on_the_broker() -> None:
    elsewhere = partition(0, [1, 2], [1])
    client = FakeClient(
        [elsewhere, partition(1, [0, 1], [1])], [elsewhere, partition(1, [0, 1], [1, 0])]
    )
    _until_in_sync(client, 0, 10.0)
    assert len(client.answers) == 1


def test_a_broker_that_is_fenced_or_gone_is_not_live() -> None:
    client = FakeClient([])
    assert [_is_live(client, broker) for broker in (1, 2, 3)] == [True, False, False]


def test_partitions_that_stay_out_of_sync_are_named() -> None:
    client = FakeClient([partition(index, [0, 1], [1]) for index in range(5)])
    with pytest.raises(CommandFailed, match="t:0, t:1, t:2 and 2 more are in sync"):
        _until_in_sync(client, 0, 0.0)
