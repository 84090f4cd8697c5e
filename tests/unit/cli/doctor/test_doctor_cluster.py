"""`raylog doctor`: clocks, health and Ray, and the command on embedded brokers."""

import json
import socket
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
from typer.testing import CliRunner

from raylog.cli import progress
from raylog.cli.app import app
from raylog.cli.doctor import clocks, cluster, command, on_ray
from raylog.cli.doctor.clocks import ClockFacts
from raylog.cli.doctor.findings import Finding, Status
from raylog.cli.doctor.on_ray import RayFacts
from raylog.cli.failures import Failure
from raylog.cli.top import events
from raylog.cli.top.events import PartFailed
from raylog.client import Admin, NewTopic, TopicPartition
from raylog.cluster_record import ClusterRecord
from raylog.testing import EmbeddedBroker
from tests.support.top_clusters import cluster as seen
from tests.support.top_clusters import partition, watching
from tests.worlds.servers.secure_broker import USER, SecureBroker


def run(*arguments: str, code: int = 0, env: dict[str, str] | None = None) -> str:
    environment = {"COLUMNS": "200", "NO_COLOR": "1", **(env or {})}
    result = CliRunner().invoke(app, ["doctor", *arguments], env=environment)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout


def statuses(found: list[Finding]) -> dict[str, Status]:
    return {one.check: one.status for one in found}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (ClockFacts(), [Status.UNKNOWN]),
        (ClockFacts(1, 1_900, 10), [Status.OK]),
        (ClockFacts(1, 2_100, 10), [Status.WARNING]),
        (ClockFacts(1, -90_000, 10), [Status.WARNING]),
        (ClockFacts(1, 2_100, 500), [Status.OK]),
        (ClockFacts(1, 0, 1, {2: 60_000, 3: -5e9}), [Status.OK, Status.WARNING]),
        (ClockFacts(newest_ahead_ms={2: -1}), [Status.UNKNOWN]),
    ],
)
def test_clocks(facts: ClockFacts, expected: list[Status]) -> None:
    assert [one.status for one in clocks.check(facts)] == expected


def test_health_is_what_top_calls_wrong() -> None:
    well = watching(seen(("t", partition(0))))
    (one,) = cluster.check_health(well.known)
    assert (one.status, one.check) == (Status.OK, "health")
    ill = watching(
        seen(("t", partition(0, isr=(0, 1)))), PartFailed(0, events.DISKS, "no", is_refused=True)
    )
    assert statuses(cluster.check_health(ill.known)) == {
        "under-replicated": Status.FAILURE,
        "not-known": Status.UNKNOWN,
    }


@pytest.mark.parametrize(
    ("min_isr", "status"),
    [(1, Status.OK), (2, Status.OK), (3, Status.WARNING), (4, Status.FAILURE)],
)
def test_min_isr_beside_the_number_of_replicas(min_isr: int, status: Status) -> None:
    known = watching(seen(("t", partition(0)))).known
    assert cluster.check_min_isr(known, {"t": min_isr}, "").status is status
    assert cluster.check_min_isr(known, {}, "").status is Status.UNKNOWN


def test_a_single_replica_is_no_trouble_of_min_isr() -> None:
    known = watching(seen(("t", partition(0, replicas=(0,), isr=(0,))))).known
    assert cluster.check_min_isr(known, {"t": 1}, "").status is Status.OK


def broker_row(**changes: object) -> dict[str, object]:
    row: dict[str, object] = {
        "broker": 1,
        "ready": True,
        "state": "running",
        "reasons": [],
        "partitions": 4,
        "offline_partitions": 0,
    }
    return row | changes


def test_a_cluster_on_ray_that_is_well() -> None:
    facts = RayFacts({"10.0.0.1 (a)": True}, [broker_row()], builds={"b/1": "2"}, build="2")
    assert statuses(on_ray.check(facts, "")) == dict.fromkeys(
        ("ray nodes", "broker 1", "builds", "crashes"), Status.OK
    )


def test_a_cluster_on_ray_that_is_ill() -> None:
    facts = RayFacts(
        {"a": True, "b": False},
        [broker_row(ready=False, state="fenced", reasons=["no heartbeat"])],
        disks=["Broker 1: its disk is nearly full"],
        silent=["broker 2 does not answer"],
        builds={"c/x/broker/1/0": "1"},
        build="2",
        crashes=3,
    )
    found = on_ray.check(facts, " --data d")
    assert statuses(found) == {
        "ray nodes": Status.FAILURE,
        "broker 1": Status.FAILURE,
        "process": Status.FAILURE,
        "disk": Status.FAILURE,
        "builds": Status.WARNING,
        "crashes": Status.WARNING,
    }
    assert found[1].found == "fenced: no heartbeat"
    assert found[1].do == "raylog status --data d; raylog logs --data d"
    assert found[-2].do.endswith("then: raylog brokers restart --all --data d")
    assert found[-1].do == "raylog logs --crashes --data d"
    offline = on_ray.check(RayFacts({}, [broker_row(offline_partitions=2)]), "")
    assert offline[0].status is Status.UNKNOWN
    assert offline[1].found == "running: 2 of its 4 partitions are offline"


@pytest.mark.parametrize(
    ("address", "hint"),
    [(None, "Its logs are under d/run/ray"), ("auto", "Check it with: ray status")],
)
def test_ray_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, address: str | None, hint: str
) -> None:
    late: list[Failure] = []

    def within(_: float, failure: Failure) -> nullcontext[None]:
        late.append(failure)
        return nullcontext()

    monkeypatch.setattr(progress, "within", within)
    monkeypatch.setattr(on_ray, "gather", lambda *_: RayFacts({}))
    record = ClusterRecord("c", [], [], "h:1", None, "secret")
    command._running(record, Path("d"), address, progress.Progress())
    assert [one.hint for one in late] == [hint]


def test_the_latest_start_of_a_process_tells_its_build() -> None:
    texts = [
        ("c/broker/1/0", "c/broker/1/0 starts, build 0.1.0"),
        ("c/broker/1/0", "something else"),
        ("c/broker/1/0", "c/broker/1/0 starts, build 0.2.0"),
    ]
    assert on_ray.builds_of(texts) == {"broker/1/0": "0.2.0"}


# ---- the command -----------------------------------------------------------------------------


def test_brokers_as_a_client_sees_them() -> None:
    with EmbeddedBroker(brokers=3) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topics([NewTopic("t", 1, 3)])
            admin.commit_group_offsets("g", {TopicPartition("t", 0): 0})
        output = run("-b", broker.bootstrap)
        assert output.splitlines()[0] == "this machine, as a client"
        found = json.loads(run("-b", broker.bootstrap, "--json"))
        assert found["ok"] is True
        brokers = [one for one in found["findings"] if one["check"].startswith("broker ")]
        assert len([one for one in brokers if one["found"].startswith("answers in")]) == 3
        (clock,) = [one for one in found["findings"] if one["check"] == "clocks"]
        assert clock["status"] == "ok"
        assert "agrees with this machine's" in clock["found"]
        (health,) = [one for one in found["findings"] if one["check"] == "health"]
        assert health["status"] == "ok"


def test_a_clock_that_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    with EmbeddedBroker() as broker:
        monkeypatch.setattr("raylog.cli.doctor.clocks.time.time", lambda: now - 3_600)
        output = run("-b", broker.bootstrap)
        monkeypatch.undo()
    assert "ahead of this machine's" in output


def test_partitions_that_acks_all_can_never_write_to() -> None:
    with EmbeddedBroker() as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topics([NewTopic("t", 1, 1, configs={"min.insync.replicas": "2"})])
        output = run("-b", broker.bootstrap, code=1)
    assert "so acks=all always fails: t-0" in output
    assert "-> raylog topics reassign -t TOPIC -r 3 -b 127.0.0.1" in output


def test_nobody_answers_and_the_exit_code_is_1() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        output = run("-b", address, code=1)
    assert f"failure  bootstrap {address}  the connection is refused" in output
    assert "is the broker up, and is the port right?" in output


def test_settings_of_the_client_are_taken_and_a_refused_login_is_reported() -> None:
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": "wrong",
    }
    options = [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]
    with SecureBroker(mechanisms=("PLAIN",)).running() as broker:
        output = run("-b", broker.address, *options, code=1)
    assert f"failure  bootstrap {broker.address}" in output
    assert "fails at the login (SASL): PLAIN as 'ann'" in output
    assert "compare sasl.mechanism, sasl.username and sasl.password" in output


def test_before_a_cluster_runs(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        output = run("--data", str(tmp_path / "data"), "--port", port, code=1)
    assert f"failure  ports           cannot listen on 127.0.0.1:{port}" in output
    assert "data will be created in" in output
    assert not (tmp_path / "data").exists()


def test_a_directory_that_is_named_counts_more_than_brokers_of_the_environment(
    tmp_path: Path,
) -> None:
    arguments = ["doctor", "--data", str(tmp_path), "--json"]
    output = CliRunner().invoke(app, arguments, env={"RAYLOG_BOOTSTRAP": "127.0.0.1:1"}).stdout
    assert {one["area"] for one in json.loads(output)["findings"]} == {
        "this machine",
        f"data directory {tmp_path}",
    }
