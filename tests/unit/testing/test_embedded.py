"""The embedded broker and its pytest fixture."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from raylog.client import EARLIEST, BlockingClient, NewTopic, TopicPartition
from raylog.testing import EmbeddedBroker
from raylog.wire.errors import InvalidConfig
from raylog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.support.wire_client import WireClient


def write(bootstrap: str, topic: str, count: int) -> None:
    with BlockingClient(bootstrap) as client, client.producer() as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=0)


def read(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    with BlockingClient(bootstrap) as client:
        consumer = client.consumer()
        consumer.assign({TopicPartition(topic, 0): EARLIEST})
        for _ in range(50):
            values += (r.value for group in consumer.poll(200) for r in group.records)
            if len(values) >= count:
                break
    return values


def test_three_brokers_in_one_process_know_nothing_of_one_another() -> None:
    with EmbeddedBroker() as a, EmbeddedBroker() as b, EmbeddedBroker() as c:
        brokers = [a, b, c]
        assert len({broker.bootstrap for broker in brokers}) == 3
        for number, broker in enumerate(brokers):
            write(broker.bootstrap, f"topic-{number}", 10)
        for number, broker in enumerate(brokers):
            with BlockingClient(broker.bootstrap) as client:
                assert set(client.metadata().topics) == {f"topic-{number}"}
            assert len(read(broker.bootstrap, f"topic-{number}", 10)) == 10


def test_other_machines_are_let_in_only_if_that_is_asked_for() -> None:
    open_to_all = {"listeners": "PLAINTEXT://192.0.2.1:0"}
    with pytest.raises(InvalidConfig, match=r"other machines can reach PLAINTEXT://192\.0\.2\.1"):
        EmbeddedBroker(settings=open_to_all).start()
    with pytest.raises(InvalidConfig, match=r"cannot listen on PLAINTEXT://192\.0\.2\.1"):
        EmbeddedBroker(settings=open_to_all, insecure=True).start()
    with pytest.raises(InvalidConfig, match=r"nonroutable meta-address 0\.0\.0\.0"):
        EmbeddedBroker(settings={"listeners": "PLAINTEXT://0.0.0.0:0"}, insecure=True).start()


def test_a_cluster_of_brokers_shares_its_topics() -> None:
    with EmbeddedBroker(brokers=3, first_broker_id=5) as cluster:
        assert len(cluster.bootstrap_servers) == 3
        write(cluster.bootstrap_servers[0], "t", 10)
        assert read(cluster.bootstrap_servers[2], "t", 10) == [b"%d" % n for n in range(10)]
        with BlockingClient(cluster.bootstrap) as client:
            assert sorted(client.metadata([]).nodes) == [5, 6, 7]


def test_brokers_stand_in_racks_in_turn_and_replicas_in_different_ones() -> None:
    with (
        EmbeddedBroker(4, racks=["a", "b"]) as cluster,
        BlockingClient(cluster.bootstrap) as client,
    ):
        racks = {one.broker_id: one.rack for one in client.describe_cluster().brokers}
        assert racks == {0: "a", 1: "b", 2: "a", 3: "b"}
        client.create_topics([NewTopic("t", 4, 2)])
        for one in client.describe_partitions(["t"]).values():
            assert {racks[broker] for broker in one.replicas} == {"a", "b"}


def test_data_that_was_given_is_found_again(tmp_path: Path) -> None:
    with EmbeddedBroker(data=tmp_path) as broker:
        write(broker.bootstrap, "kept", 100)
    with EmbeddedBroker(data=tmp_path) as broker:
        assert len(read(broker.bootstrap, "kept", 100)) == 100
    assert tmp_path.exists()


def test_settings_are_those_of_a_broker() -> None:
    with (
        EmbeddedBroker(settings={"num.partitions": "4"}) as broker,
        BlockingClient(broker.bootstrap) as client,
    ):
        with client.producer() as producer:
            producer.send("t", b"v")
        assert len(client.describe_topic("t").partitions) == 4
    with (
        pytest.raises(InvalidConfig, match=r"did you mean num\.partitions"),
        EmbeddedBroker(settings={"num.partition": "4"}),
    ):
        pass


def test_mistakes_of_a_first_test_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected 1 broker or more, found 0"):
        EmbeddedBroker(0)
    numbers: Any = {"num.partitions": 3}
    with pytest.raises(TypeError, match=r"setting num\.partitions: expected a str .* found 3"):
        EmbeddedBroker(settings=numbers)
    broker = EmbeddedBroker()
    with pytest.raises(RuntimeError, match="was not started: use `with`"):
        assert broker.bootstrap
    with broker:
        assert broker.bootstrap
        with pytest.raises(RuntimeError, match="was started before"):
            broker.start()
    with pytest.raises(RuntimeError, match="was started before: make another one"):
        broker.start()
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError, match="file"):
        EmbeddedBroker(data=tmp_path / "file").start()


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = threading.active_count()
    broker = EmbeddedBroker().start()
    write(broker.bootstrap, "t", 1)
    assert list(tmp_path.iterdir())
    broker.stop()
    broker.stop()
    assert not list(tmp_path.iterdir())
    assert threading.active_count() == before


def test_the_fixture_is_a_running_broker(raylog_broker: EmbeddedBroker) -> None:
    write(raylog_broker.bootstrap, "t", 3)
    assert read(raylog_broker.bootstrap, "t", 3) == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import raylog.testing.plugin", ("ray", "uvloop", "asyncio", "raylog.actors")),
        ("import raylog.testing", ("ray", "uvloop", "raylog.actors")),
        ("from raylog.testing import EmbeddedBroker as E; E().start().stop()", ("ray", "pydantic")),
    ],
)
def test_no_more_is_imported_than_needed(code: str, absent: tuple[str, ...]) -> None:
    known = "import pytest, sys; before = set(sys.modules)"
    check = f"{known}\n{code}\nprint(*(set(sys.modules) - before))"
    result = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=True, timeout=60
    )
    assert not set(result.stdout.split()) & set(absent)


def test_a_broker_tells_who_it_is_and_where_its_logs_are(tmp_path: Path) -> None:
    """As Apache Kafka does, where both are given at the start."""
    with EmbeddedBroker(data=tmp_path, settings={"num.partitions": "3"}) as broker:
        host, _, port = broker.bootstrap.rpartition(":")
        with WireClient(host, int(port)) as client:
            keys = ["broker.id", "log.dirs", "num.partitions", "message.max.bytes"]
            resource = DescribeConfigsResource(
                resource_type=4, resource_name="0", configuration_keys=keys
            )
            answer = client.ask(DescribeConfigsRequest(resources=[resource]), 4)
    described = {one.name: (one.value, one.config_source) for one in answer.results[0].configs}
    value, source = described.pop("log.dirs")
    assert value.startswith(str(tmp_path))
    assert source == 4
    assert described == {
        "broker.id": ("0", 4),
        "num.partitions": ("3", 4),
        "message.max.bytes": ("1048588", 5),
    }
