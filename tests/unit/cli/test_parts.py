"""Helpers of the commands."""

import errno
import io
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from raylog.actors.broker.messages import BrokerStatus
from raylog.actors.common_messages import PartitionStatus, TopicId
from raylog.actors.endpoints import Endpoint
from raylog.actors.names import GATEWAY, child_name, controller_name, rival_name
from raylog.actors.runtime.link_secret import read_secrets
from raylog.cli.broker_settings import read_settings
from raylog.cli.consume import parse_time
from raylog.cli.failures import CommandFailed, explain
from raylog.cli.local_cluster import _logs_hint, count_brokers
from raylog.cli.output import human_bytes
from raylog.cli.produce import read_lines
from raylog.cli.status import (
    _actor_rows,
    _health,
    _partition_rows,
    _role_of,
    _show_strays,
    ago,
    folded,
    health_lines,
    quorum_rows,
    stray_rows,
    unanswered,
)
from raylog.cli.status_disks import disk_lines, disk_rows
from raylog.cli.status_listeners import listener_rows
from raylog.client import PartitionReplicas, QuorumMember, QuorumView
from raylog.client.errors import NotConnected, RequestTimedOut
from raylog.cluster_record import (
    ClusterRecord,
    forget_record,
    read_record,
    run_directory,
    secret_path,
)
from raylog.wire.errors import InvalidConfig, UnknownTopicOrPartition


def test_settings_come_from_a_file_and_then_the_command_line(tmp_path: Path) -> None:
    toml = tmp_path / "raylog.toml"
    toml.write_text(
        'num.partitions = 3\n"auto.create.topics.enable" = false\n[log]\nretention.ms = 5\n'
    )
    assert read_settings(toml, ["num.partitions=4"]) == {
        "num.partitions": "4",
        "auto.create.topics.enable": "false",
        "log.retention.ms": "5",
    }
    properties = tmp_path / "server.properties"
    properties.write_text("# comment\n\nnum.partitions = 3\n!old\n")
    assert read_settings(properties, None) == {"num.partitions": "3"}


def test_bad_settings_are_named(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions\n")
    with pytest.raises(CommandFailed, match=r"line 1: expected KEY=VALUE, found 'num\.partitions'"):
        read_settings(file, None)
    broken = tmp_path / "broken.toml"
    broken.write_text("= 1")
    with pytest.raises(CommandFailed, match=r"broken\.toml"):
        read_settings(broken, None)
    with pytest.raises(InvalidConfig, match=r"did you mean num\.partitions"):
        read_settings(None, ["num.partition=3"])
    with pytest.raises(CommandFailed, match="is different for each broker"):
        read_settings(None, ["broker.id=3"])


def test_the_record_of_a_cluster(tmp_path: Path) -> None:
    run = run_directory(tmp_path / "data")
    assert read_record(run) is None
    record = ClusterRecord("id", [0, 1], ["h:1", "h:2"], "127.0.0.1:6379", None, "secret")
    record.write(run)
    assert read_record(run) == record
    forget_record(run)
    forget_record(run)
    assert read_record(run) is None


def test_secrets_are_for_their_owner_only(tmp_path: Path) -> None:
    run = run_directory(tmp_path / "data")
    path = secret_path(run)
    assert (path.stat().st_mode & 0o777, run.stat().st_mode & 0o777) == (0o600, 0o700)
    before = path.read_bytes()
    assert len(before) == 32
    assert secret_path(run).read_bytes() == before


def test_a_secret_that_was_not_written_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    run = run_directory(tmp_path / "data")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            secret_path(run)
    assert list(run.iterdir()) == []
    assert len(secret_path(run).read_bytes()) == 32


def test_an_empty_secret_is_made_anew(tmp_path: Path) -> None:
    run = run_directory(tmp_path / "data")
    (run / "cluster.secret").touch()
    assert len(read_secrets(str(secret_path(run))).current) == 32
    assert [path.name for path in run.iterdir()] == ["cluster.secret"]


@pytest.mark.parametrize("contents", [b"short", b"raylog-secrets\ncurrent zz"])
def test_a_secret_that_somebody_wrote_is_kept(tmp_path: Path, contents: bytes) -> None:
    run = run_directory(tmp_path / "data")
    (run / "cluster.secret").write_bytes(contents)
    assert secret_path(run).read_bytes() == contents


def test_as_many_brokers_start_as_have_data(tmp_path: Path) -> None:
    assert count_brokers(tmp_path, None) == 1
    assert count_brokers(tmp_path, 3) == 3


def test_a_broker_that_lost_its_name_is_not_left_out(tmp_path: Path) -> None:
    (tmp_path / "broker-1" / "topics").mkdir(parents=True)
    assert count_brokers(tmp_path, None) == 1
    (tmp_path / "broker-1" / "topics" / "t-0").mkdir()
    with pytest.raises(CommandFailed, match=r"broker-1 holds a broker's data, but its meta.json"):
        count_brokers(tmp_path, None)
    assert count_brokers(tmp_path, 2) == 2


@pytest.mark.parametrize(
    ("size", "text"),
    [(-1, "?"), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 * 2**40, "5.0 TiB")],
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert human_bytes(size) == text


def test_times() -> None:
    assert parse_time("@123") == 123
    assert parse_time("1970-01-01T00:00:01+00:00") == 1_000
    assert parse_time("1970-01-01T01:00:01.5+01:00") == 1_500


def test_failures_of_broker_client_and_system_are_explained() -> None:
    found = explain(UnknownTopicOrPartition("topic 'x'"))
    assert found is not None
    assert found.message == "UNKNOWN_TOPIC_OR_PARTITION: topic 'x'"
    assert "raylog topics list" in str(found.hint)
    found = explain(NotConnected("h:1 refused"))
    assert found is not None
    assert found.exit_code == 3
    for error in (RequestTimedOut("late"), OSError("disk"), BrokenPipeError()):
        found = explain(error)
        assert found is not None
        assert found.exit_code == 1
    assert explain(ZeroDivisionError()) is None, "our own bug keeps its traceback"


def test_lines_are_sent_when_the_input_falls_silent() -> None:
    reader, writer = os.pipe()
    said: list[bytes] = []

    def idle() -> None:
        said.append(b"idle")
        os.write(writer, b"e\nlast")
        os.close(writer)

    os.write(writer, b"one\r\ntwo\nthre")
    with os.fdopen(reader, "rb") as source:
        for line in read_lines(source, idle):
            said.append(line)  # noqa: PERF402 - the order between lines and idleness is the point
    assert said == [b"one", b"two", b"idle", b"three", b"last"]


def test_an_empty_input_has_no_lines(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    with empty.open("rb") as source:
        assert isinstance(source, io.BufferedReader)
        assert list(read_lines(source, lambda: None)) == []


def test_actors_and_partitions_are_put_together() -> None:
    from raylog.actors.broker.messages import BrokerStatus, ChildStatus
    from raylog.actors.common_messages import PartitionStatus, TopicId
    from raylog.actors.runtime.ray_node import ActorEntry
    from raylog.cli.local_cluster import Standing

    node = "a" * 56
    at = PartitionStatus(
        topic_id=TopicId(b"i" * 16),
        topic="t",
        partition=0,
        leader_epoch=3,
        is_leader=True,
        log_start_offset=1,
        high_watermark=5,
        log_end_offset=6,
        size_bytes=100,
        segments=1,
    )
    broker = BrokerStatus(
        broker_id=1,
        cluster_id="c",
        broker_epoch=9,
        host="h",
        port=1,
        directory="d",
        pid=11,
        state="running",
        restarts=0,
        metadata_offset=4,
        is_voter=True,
        children=[
            ChildStatus("c/gateway/1/4@c/replica/1/3", "gateway", 12, node, "running", 1),
            ChildStatus("c/replica/1/3", "replica", 12, node, "spare", 2),
        ],
        partitions=[at],
    )
    actors = [
        ActorEntry("c/broker/1/0", "ALIVE", 11, node, 4),
        ActorEntry("c/broker/2/0", "RESTARTING", 0, "", 5),
        ActorEntry("c/broker/3/0", "ALIVE", 14, node, 0),
        ActorEntry("c/controller", "ALIVE", 13, node, 0),
        ActorEntry("c/replica/1/3", "ALIVE", 12, node, 0),
        ActorEntry("c/replica/3/1", "ALIVE", 15, node, 0),
    ]
    silent = frozenset({"c/broker/3/0"})
    failures = {"c/broker/2/0": "c/broker/2/0 is gone", "c/broker/3/0": "too late"}
    stands = Standing(actors, [broker], failures, silent)
    rows = _actor_rows(stands)
    assert [
        (row["role"], row["broker"], row["state"], row["restarts"], row["partitions"])
        for row in rows
    ] == [
        ("broker", 1, "running", 4, 1),
        ("broker", 2, "restarting", 5, None),
        ("broker", 3, "silent", 0, None),
        ("controller", None, "running", 0, None),
        ("gateway", 1, "running", 1, 0),
        ("replica", 1, "spare", 2, 0),
        ("replica", 3, "unknown", 0, None),
    ]
    assert unanswered(stands, Path("d")) == [
        "broker 2: c/broker/2/0 is gone",
        "broker 3 does not answer (process 14); restart it with: raylog brokers restart 3 --data d",
    ]
    replicas = [
        PartitionReplicas("t", 0, 1, 0, (1,), (1,)),
        PartitionReplicas("t", 1, -1, 0, (1, 2), ()),
    ]
    (led, leaderless) = _partition_rows([broker], replicas)
    assert (led["leader"], led["high_watermark"], led["size_bytes"]) == (1, 5, 100)
    assert (leaderless["leader"], leaderless["high_watermark"]) == (None, None)


def test_the_health_of_partitions_names_what_shows_them() -> None:
    replicas = [
        PartitionReplicas("t", 0, 1, 0, (1,), (1,)),
        PartitionReplicas("t", 1, -1, 0, (1, 2), ()),
        PartitionReplicas("t", 2, -1, 0, (2,), (2,)),
    ]
    here, elsewhere = ["127.0.0.1:9092", "127.0.0.1:9093"], ["127.0.0.1:1", "127.0.0.1:2"]
    health = _health(replicas, 2)
    assert health == {
        "partitions": 3,
        "under_replicated": 1,
        "single_replica": 2,
        "unavailable": 2,
    }
    assert health_lines(health, here) == [
        "Partitions without a leader, unavailable: 2 of 3. "
        "List them with: raylog topics describe --unavailable",
        "Partitions with a replica out of sync: 1 of 3. "
        "List them with: raylog topics describe --under-replicated",
        "Partitions with a single replica, unavailable while its broker is down: 2 of 3. "
        "Add replicas with: raylog topics reassign -t TOPIC -r 2",
    ]
    assert "raylog topics describe -b 127.0.0.1:1 " in health_lines(health, elsewhere)[0]
    fine = health_lines(_health(replicas[:1], 1), here)
    assert fine == ["Partitions: 1, all with a leader and with all replicas in sync"]
    assert health_lines(_health([], 1), here) == ["There are no partitions yet"]
    (unknown,) = health_lines(None, here)
    assert "no broker answers" in unknown


def test_strays_are_reported_with_where_and_how_large(capsys: pytest.CaptureFixture[str]) -> None:
    from raylog.actors.broker.messages import BrokerStatus, StrayStatus

    def broker(broker_id: int, *strays: StrayStatus) -> BrokerStatus:
        return BrokerStatus(
            broker_id, "c", 9, "h", 1, "d", 11, "running", 0, 4, False, [], [], list(strays)
        )

    one = StrayStatus("/data/topics/t-0.AAECAwQFBgcICQoLDA0ODw.17-stray", 3 * 1024 * 1024)
    rows = stray_rows([broker(0), broker(1, one)])
    assert rows == [{"broker": 1, "size_bytes": one.size_bytes, "directory": one.directory}]
    _show_strays([])
    assert capsys.readouterr().out == ""
    _show_strays(rows)
    shown = capsys.readouterr().out
    assert one.directory in shown.replace("\n", "")
    assert "3.0 MiB" in shown
    assert "1 directories belong to partitions that their broker does not have" in shown


def test_whose_an_actor_is() -> None:
    assert _role_of(child_name("c", GATEWAY, 2, 1)) == ("gateway", 2)
    assert _role_of(controller_name("c")) == ("controller", None)
    assert _role_of(rival_name("c", 1, 12)) == ("controller", None)


def test_the_metadata_quorum_as_rows() -> None:
    quorum = QuorumView(
        1,
        4,
        98,
        [QuorumMember(1, 100, 5, 5), QuorumMember(2, 90, 4, -1)],
        [QuorumMember(3, -1, -1, -1)],
    )
    rows = quorum_rows(quorum)
    assert [(row["role"], row["lag"]) for row in rows] == [
        ("leader", 0),
        ("voter", 10),
        ("observer", None),
    ]
    assert quorum_rows(None) == []
    assert ago(-1) is None
    assert str(ago(int(time.time() * 1000))).endswith(" s ago")


def test_failed_start_hints_at_a_full_disk_or_the_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _logs_hint(tmp_path).endswith("/ray/session_latest/logs")
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=4096))
    assert _logs_hint(tmp_path) == f"The disk of {tmp_path} is full: free space on it"


# ---- disks ---------------------------------------------------------------------------------------


def _broker(*troubles: str, offline: bool = False, **fields: object) -> BrokerStatus:
    return BrokerStatus(
        **{
            "broker_id": 1,
            "cluster_id": "c",
            "broker_epoch": 9,
            "host": "h",
            "port": 1,
            "directory": "/d",
            "pid": 11,
            "state": "running",
            "restarts": 0,
            "metadata_offset": 4,
            "is_voter": True,
            "children": [],
            "partitions": [
                PartitionStatus(
                    TopicId(b"i" * 16), "t", at, 3, True, 0, 5, 6, 100, 1, offline, True, why
                )
                for at, why in enumerate(troubles)
            ],
            "total_bytes": 10 << 30,
            "usable_bytes": 5 << 30,
            **fields,
        }  # type: ignore[arg-type]  # by name
    )


def _lines(broker: BrokerStatus) -> list[str]:
    return list(disk_lines(disk_rows([broker]), Path("raylog-data")))


def test_a_disk_that_takes_writes_is_not_mentioned() -> None:
    assert _lines(_broker("", "")) == []
    assert _lines(_broker()) == []


def test_a_full_disk_is_reported_with_what_to_do() -> None:
    assert _lines(_broker("", "t-1: write: No space left on device", usable_bytes=0)) == [
        "Broker 1: its disk refused the newest write to 1 of 2 partitions (t-1: write: No space "
        "left on device). 0 B of 10.0 GiB are free on the volume of /d. Free space on it, or "
        "shorten the retention of topics; writes then continue automatically"
    ]
    (nearly,) = _lines(_broker("", usable_bytes=100 << 20))
    assert nearly.startswith("Broker 1: its disk is nearly full. 100.0 MiB of 10.0 GiB are free")


def test_a_disk_that_has_failed_is_reported_with_what_to_do() -> None:
    (failed,) = _lines(_broker("t-0 is offline: flush: Input/output error", offline=True))
    assert failed == (
        "Broker 1: its disk failed, and 1 of 1 partitions are offline (t-0 is offline: "
        "flush: Input/output error). When the disk works again: raylog brokers restart 1"
    )
    (votes,) = _lines(_broker("", vote_trouble="the metadata log cannot be written: full"))
    assert votes == (
        "Broker 1 no longer votes on the metadata: the metadata log cannot be written: "
        "full. When its disk accepts writes again: raylog brokers restart 1"
    )
    (silent,) = _lines(_broker("full", total_bytes=-1, usable_bytes=-1))
    assert "The free space on the volume of /d is not known" in silent


def test_brokers_of_older_builds_tell_less_of_their_disks() -> None:
    """They are asked while a cluster is upgraded."""
    broker = _broker("")
    for name in ("total_bytes", "usable_bytes", "vote_trouble"):
        object.__delattr__(broker, name)
    object.__delattr__(broker.partitions[0], "trouble")
    assert _lines(broker) == []


def test_partitions_of_internal_topics_are_one_line() -> None:
    def row(topic: str, partition: int, isr: list[int] | None = None) -> dict[str, object]:
        return {
            "topic": topic,
            "partition": partition,
            "leader": 1,
            "leader_epoch": 0,
            "replicas": [2, 1],
            "isr": [1, 2] if isr is None else isr,
            "log_start_offset": 0,
            "high_watermark": 0,
            "size_bytes": 100 if partition else -1,
            "segments": 1,
        }

    internal = [row("__consumer_offsets", at) for at in range(50)]
    lacking = row("__consumer_offsets", 50, [1])
    alone = row("__transaction_state", 0)
    shown = folded([*internal, lacking, alone, row("t", 0)])
    assert shown[:2] == [lacking, row("t", 0)], "what lacks something has a line of its own"
    fold = shown[2]
    assert (fold["topic"], fold["partition"], fold["isr"]) == (
        "__consumer_offsets",
        "50 of them",
        "all",
    )
    assert fold["size_bytes"] == 4_900
    assert list(fold) == list(alone)
    assert shown[3:] == [alone]


# ---- listeners -----------------------------------------------------------------------------------


def test_each_listener_is_reported_with_where_it_listens_and_what_clients_are_told() -> None:
    listening = (
        Endpoint("IN", "10.0.0.1", 9092),
        Endpoint("OUT", "", 9093),
        Endpoint("X", "::", 1),
    )
    endpoints = (Endpoint("IN", "10.0.0.1", 9092), Endpoint("OUT", "2001:db8::1", 19093))
    rows = listener_rows([_broker(listening=listening, endpoints=endpoints), _broker()])
    assert [[*row.values()] for row in rows] == [
        [1, "IN", "10.0.0.1:9092", "10.0.0.1:9092"],
        [1, "OUT", "*:9093", "[2001:db8::1]:19093"],
        [1, "X", "[::]:1", None],
        [1, "PLAINTEXT", None, "h:1"],
    ]
