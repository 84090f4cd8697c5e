"""A broker's shell, with a real controller and children that only record calls."""

import asyncio
import errno
import json
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from raylog.actors.broker import child_processes
from raylog.actors.broker.actor import BrokerActor
from raylog.actors.broker.identity import read_identity
from raylog.actors.common_messages import PartitionStatus
from raylog.actors.config import ResourceType
from raylog.actors.controller.actor import ControllerActor
from raylog.actors.controller.messages import (
    AlterConfigs,
    AlterOp,
    ConfigAlteration,
    ConfigOp,
    DeleteTopics,
    Follow,
    MetadataUpdate,
    NewTopic,
)
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import Record
from raylog.actors.names import REPLICA, broker_name, controller_name
from raylog.actors.runtime.base import ActorGone, ActorRef, PeerLost
from raylog.actors.runtime.inproc import InprocRuntime
from raylog.storage.disk import OsDisk
from raylog.wire.errors import (
    BrokerNotAvailable,
    DuplicateBrokerRegistration,
    InconsistentClusterId,
    InvalidConfig,
    InvalidRequest,
    KafkaStorageError,
)
from tests.worlds.broker.recording import (
    CLUSTER,
    RecordingCluster,
    RecordingGateway,
    RecordingReplica,
)
from tests.worlds.decorators import TMP_PATH, in_loop, in_world
from tests.worlds.metadata import take_in

Story = Callable[[RecordingCluster], Awaitable[None]]


def tell(story: Story, directory: Path, brokers: int = 1, **settings: str) -> None:
    async def main() -> None:
        cluster = RecordingCluster(directory, brokers, **settings)
        await cluster.up()
        await story(cluster)
        await cluster.down()

    asyncio.run(main())


def test_a_broker_starts_serves_and_stops(tmp_path: Path) -> None:
    async def story(cluster: RecordingCluster) -> None:
        status = await cluster.describe()
        assert (status.state, status.broker_id, status.is_voter) == ("running", 0, True)
        assert 0 < status.usable_bytes <= status.total_bytes
        assert status.vote_trouble == ""
        assert status.endpoints[0].port > 0
        (gateway,) = cluster.gateways()
        assert gateway.args["listening"] == status.listening
        assert gateway.image.brokers[0].endpoints == status.endpoints
        assert not gateway.image.brokers[0].fenced
        assert sorted((child.role, child.state) for child in status.children) == [
            ("gateway", "running"),
            ("replica", "spare"),
        ]
        assert (await cluster.call(0, "ping"))["state"] == "running"

    tell(story, tmp_path)
    identity = read_identity(tmp_path / "b0")
    assert identity is not None
    assert (identity.cluster_id, identity.broker_id, identity.directory_id) == (CLUSTER, 0, "d0")
    assert json.loads((tmp_path / "b0" / "state.json").read_bytes())["clean"] is True


@in_world(tell, TMP_PATH)
async def test_a_topic_is_opened_led_and_routed(
    cluster: RecordingCluster, *, tmp_path: Path
) -> None:
    (outcome,) = await cluster.create(NewTopic("t", 5, 1))
    routes = await cluster.routes(5)
    assert set(routes) == {(outcome.topic_id, at) for at in range(5)}
    for key, name in routes.items():
        replica = next(one for one in cluster.replicas() if one.name == name)
        assert replica.led[key].leader == 0
        assert replica.led[key].leader_epoch == 0
    assert len(set(routes.values())) == 2  # replica.actors.max
    status = await cluster.describe()
    assert sorted(one.partition for one in status.partitions) == [0, 1, 2, 3, 4]
    assert {child.partitions for child in status.children if child.state == "running"} == {
        0,
        2,
        3,
    }
    (directory,) = await cluster.call(0, "describe_log_dirs")
    assert directory.path == str(tmp_path / "b0")
    assert directory.total_bytes > directory.usable_bytes > 0
    assert sum(one.size_bytes for one in directory.partitions) == 35


@in_world(tell, TMP_PATH)
async def test_changed_settings_reach_the_replica(cluster: RecordingCluster) -> None:
    (outcome,) = await cluster.create(NewTopic("t", 1, 1))
    await cluster.routes(1)
    op = ConfigOp("retention.ms", AlterOp.SET, "5")
    await cluster.ask_controller(
        "alter_configs", AlterConfigs([ConfigAlteration(ResourceType.TOPIC, "t", [op])])
    )
    await cluster.until(lambda: any(one.configs for one in cluster.replicas()))
    (configs,) = [one.configs for one in cluster.replicas() if one.configs]
    assert configs[outcome.topic_id].config["retention.ms"] == "5"
    assert configs[outcome.topic_id].settings == {"retention.ms": "5"}


@in_world(tell, TMP_PATH)
async def test_a_deleted_topic_leaves_no_directory_and_one_spare(
    cluster: RecordingCluster, *, tmp_path: Path
) -> None:
    await cluster.create(NewTopic("t", 3, 1))
    await cluster.routes(3)
    topics = tmp_path / "b0" / "topics"
    assert len(list(topics.iterdir())) == 3
    await cluster.ask_controller("delete_topics", DeleteTopics(["t"]))
    await cluster.routes(0)
    await cluster.until(lambda: not list(topics.iterdir()))
    await cluster.until(lambda: len(cluster.replicas()) == 1)
    status = await cluster.describe()
    assert [child.state for child in status.children if child.role == "replica"] == ["spare"]


# ---- losses ----------------------------------------------------------------------------------


@in_world(tell, TMP_PATH)
async def test_a_lost_replica_is_succeeded_under_new_leader_epochs(
    cluster: RecordingCluster,
) -> None:
    await cluster.create(NewTopic("t", 4, 1))
    before = dict(await cluster.routes(4))
    lost = next(iter(before.values()))
    await cluster.kill(lost)
    await cluster.until(lambda: lost not in cluster.gateways()[0].routes.values())
    after = await cluster.routes(4)
    for key, name in after.items():
        replica = next(one for one in cluster.replicas() if one.name == name)
        assert replica.led[key].leader_epoch == (1 if before[key] == lost else 0)
        assert before[key] in (lost, name)
    status = await cluster.describe()
    assert sorted(child.restarts for child in status.children) == [0, 0, 0, 1]


def test_a_replica_that_fails_a_call_is_replaced(tmp_path: Path) -> None:
    class Failing(RecordingReplica):
        async def lead_partitions(self, leaderships: object) -> None:
            cluster.roles["replica"] = RecordingReplica
            raise InvalidRequest("no")

    cluster = RecordingCluster(tmp_path)
    cluster.roles["replica"] = Failing

    async def main() -> None:
        await cluster.up()
        await cluster.create(NewTopic("t", 1, 1))
        await cluster.routes(1)
        await cluster.down()

    asyncio.run(main())


def test_a_log_that_cannot_be_opened_does_not_keep_the_broker_down(tmp_path: Path) -> None:
    class Broken(RecordingReplica):
        broken = "the log is damaged"

    async def main() -> None:
        cluster = RecordingCluster(tmp_path)
        await cluster.up()
        await cluster.create(NewTopic("t", 1, 1))
        await cluster.routes(1)
        await cluster.down()
        cluster.new_world()
        cluster.roles["replica"] = Broken
        await cluster.up()
        assert cluster.gateways()[0].routes == {}
        await cluster.down()

    asyncio.run(main())


@in_world(tell, TMP_PATH)
async def test_a_lost_gateway_is_replaced_on_the_same_port_and_told_everything(
    cluster: RecordingCluster,
) -> None:
    await cluster.create(NewTopic("t", 2, 1))
    await cluster.routes(2)
    (before,) = cluster.gateways()
    await cluster.kill(before.name)
    await cluster.until(lambda: cluster.gateways() not in ([], [before]))
    await cluster.routes(2)
    (after,) = cluster.gateways()
    assert after.name != before.name
    assert after.args["listening"] == before.args["listening"]
    assert after.image.topics == before.image.topics


def test_a_gateway_that_cannot_start_is_tried_again(tmp_path: Path) -> None:
    cluster = RecordingCluster(tmp_path)
    working = cluster.roles["gateway"]

    def failing(*args: object, **kwargs: object) -> object:
        cluster.roles["gateway"] = working
        raise OSError("no port")

    cluster.roles["gateway"] = failing

    async def main() -> None:
        await cluster.up()
        await cluster.down()

    asyncio.run(main())


def test_a_broker_with_two_listeners_comes_back_on_its_ports(tmp_path: Path) -> None:
    async def story(cluster: RecordingCluster) -> None:
        before = await cluster.describe()
        assert [one.listener for one in before.listening] == ["PLAINTEXT", "X"]
        assert len({one.port for one in before.listening}) == 2
        (gateway,) = cluster.gateways()
        assert gateway.args["listening"] == before.listening
        assert gateway.image.brokers[0].endpoints == before.endpoints == before.listening
        await cluster.kill(broker_name(CLUSTER, 0))
        await cluster.spawn()
        await cluster.ready()
        assert (await cluster.describe()).listening == before.listening
        assert cluster.gateways() == [gateway], "it was adopted"

    listeners = "PLAINTEXT://127.0.0.1:0,X://127.0.0.1:0"
    protocols = "PLAINTEXT:PLAINTEXT,X:PLAINTEXT"
    tell(story, tmp_path, listeners=listeners, listener_security_protocol_map=protocols)


@in_world(tell, TMP_PATH, gateway_actors="2")
async def test_several_gateways_get_the_same_routes(cluster: RecordingCluster) -> None:
    await cluster.create(NewTopic("t", 2, 1))
    await cluster.routes(2)
    first, second = cluster.gateways()
    assert first.routes == second.routes
    assert first.args["listening"] == second.args["listening"]


def test_automatic_gateway_count_follows_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(cluster: RecordingCluster) -> None:
        await cluster.create(NewTopic("t", 1, 1))
        await cluster.routes(1)
        settings = [gateway.args["settings"]["gateway.actors"] for gateway in cluster.gateways()]
        assert settings == ["3", "3", "3"]

    monkeypatch.setattr("raylog.actors.broker.actor.cores_here", lambda: 6)
    tell(story, tmp_path, gateway_actors="auto")


@in_world(tell, TMP_PATH)
async def test_a_lost_controller_is_started_again_by_the_broker_with_the_log(
    cluster: RecordingCluster,
) -> None:
    await cluster.create(NewTopic("t", 1, 1))
    await cluster.kill(controller_name(CLUSTER))
    await cluster.until(lambda: controller_name(CLUSTER) in cluster.world._residents)
    await cluster.create(NewTopic("u", 1, 1))
    await cluster.routes(2)


@in_world(tell, TMP_PATH)
async def test_a_restarted_broker_adopts_its_children(cluster: RecordingCluster) -> None:
    await cluster.create(NewTopic("t", 3, 1))
    before = dict(await cluster.routes(3))
    endpoints = (await cluster.describe()).endpoints
    children = [*cluster.gateways(), *cluster.replicas()]
    await cluster.kill(broker_name(CLUSTER, 0))
    await cluster.spawn()
    await cluster.ready()
    assert [*cluster.gateways(), *cluster.replicas()] == children
    assert await cluster.routes(3) == before
    partitions = cluster.gateways()[0].image.topics.popitem()[1].partitions
    assert [partition.leader_epoch for partition in partitions] == [0, 0, 0]
    status = await cluster.describe()
    assert (status.restarts, status.endpoints) == (1, endpoints)
    assert len(status.partitions) == 3


def test_adopted_children_know_their_topics_at_every_moment(tmp_path: Path) -> None:
    known: list[int] = []

    class Recording(RecordingGateway):
        async def apply_metadata(
            self, begin: int, end: int, records: list[Record], parts: Sequence[bytes] = ()
        ) -> None:
            await super().apply_metadata(begin, end, records, parts)
            known.append(len(self.image.topics))

    async def main() -> None:
        cluster = RecordingCluster(tmp_path)
        cluster.roles["gateway"] = Recording
        await cluster.up()
        await cluster.create(NewTopic("t", 3, 1))
        await cluster.routes(3)
        known.clear()
        await cluster.kill(broker_name(CLUSTER, 0))
        await cluster.spawn()
        await cluster.ready()
        assert known
        assert set(known) == {1}
        await cluster.down()

    asyncio.run(main())


def test_a_snapshot_of_a_controller_that_knew_no_parts_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow = ControllerActor.follow

    async def in_records(controller: ControllerActor, asked: Follow) -> MetadataUpdate:
        update = await follow(controller, asked)
        if asked.offset:
            return update
        image = MetadataImage()
        take_in(image, update)
        return MetadataUpdate(-1, image.offset, list(image.snapshot()))

    async def story(cluster: RecordingCluster) -> None:
        await cluster.create(NewTopic("t", 3, 1))
        before = dict(await cluster.routes(3))
        await cluster.kill(broker_name(CLUSTER, 0))
        await cluster.spawn()
        await cluster.ready()
        assert await cluster.routes(3) == before
        assert set(cluster.gateways()[0].image.topic_ids) == {"t"}

    monkeypatch.setattr(ControllerActor, "follow", in_records)
    tell(story, tmp_path)


@in_world(tell, TMP_PATH)
async def test_a_replica_that_does_not_say_what_it_has_open_is_not_adopted(
    cluster: RecordingCluster,
) -> None:
    await cluster.create(NewTopic("t", 1, 1))
    before = dict(await cluster.routes(1))
    (silent,) = [one for one in cluster.replicas() if one.open]

    async def refuse() -> list[PartitionStatus]:
        raise InvalidRequest("no")

    silent.describe = refuse  # type: ignore[method-assign]  # only this one
    await cluster.kill(broker_name(CLUSTER, 0))
    await cluster.spawn()
    await cluster.ready()
    assert silent not in cluster.replicas()
    assert await cluster.routes(1) != before


@in_world(tell, TMP_PATH)
async def test_a_child_that_hangs_is_ended_and_not_left_to_come_back(
    cluster: RecordingCluster, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create(NewTopic("t", 1, 1))
    before = dict(await cluster.routes(1))
    (hanging,) = [one for one in cluster.replicas() if one.open]

    async def never() -> dict[str, str]:
        await asyncio.Event().wait()
        return {}

    hanging.ping = never  # type: ignore[method-assign]  # only this one
    monkeypatch.setattr("raylog.actors.broker.child_processes.CALL_TIMEOUT_MS", 50)
    await cluster.kill(broker_name(CLUSTER, 0))
    await cluster.spawn()
    await cluster.ready()
    assert hanging not in cluster.replicas()
    assert await cluster.routes(1) != before


@in_world(tell, TMP_PATH)
async def test_children_of_another_build_are_ended(
    cluster: RecordingCluster, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create(NewTopic("t", 1, 1))
    await cluster.routes(1)
    before = [*cluster.gateways(), *cluster.replicas()]
    await cluster.kill(broker_name(CLUSTER, 0))
    monkeypatch.setattr("raylog.actors.broker.child_processes.BUILD", "newer")
    await cluster.spawn()
    await cluster.ready()
    await cluster.routes(1)
    after = [*cluster.gateways(), *cluster.replicas()]
    assert not set(before) & set(after)
    (partition,) = cluster.gateways()[0].image.topics.popitem()[1].partitions
    assert partition.leader_epoch == 1


@in_world(tell, TMP_PATH)
async def test_children_of_a_broker_that_ended_while_it_shut_down_are_not_adopted(
    cluster: RecordingCluster, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [*cluster.gateways(), *cluster.replicas()]
    with monkeypatch.context() as hanging:
        asked = never_stops(RecordingGateway, hanging)
        shutdown = asyncio.create_task(cluster.call(0, "shutdown"))
        await cluster.until(lambda: bool(asked))
        await cluster.kill(broker_name(CLUSTER, 0))
        with pytest.raises(PeerLost):
            await shutdown
    await cluster.spawn()
    await cluster.ready()
    assert not {*before} & {*cluster.gateways(), *cluster.replicas()}


@in_world(tell, TMP_PATH)
async def test_a_gateway_that_is_lost_while_its_broker_shuts_down(
    cluster: RecordingCluster, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    (gateway,) = cluster.gateways()
    is_over, kill = asyncio.Event(), InprocRuntime.kill

    async def slow(runtime: InprocRuntime, ref: ActorRef) -> None:
        await is_over.wait()
        await kill(runtime, ref)

    with monkeypatch.context() as hanging:
        hanging.setattr(InprocRuntime, "kill", slow)
        cluster.world.drop(gateway.name)
        shutdown = asyncio.create_task(cluster.call(0, "shutdown"))
        for _ in range(20):
            await asyncio.sleep(0)
        is_over.set()
        await shutdown
    assert not cluster.world.failures


@in_world(tell, TMP_PATH, replica_actors_spare="2")
async def test_a_surplus_replica_that_was_told_to_stop_is_not_adopted(
    cluster: RecordingCluster, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.kill(broker_name(CLUSTER, 0))
    with monkeypatch.context() as hanging:
        asked = never_stops(RecordingReplica, hanging)
        cluster.settings["replica.actors.spare"] = "0"
        await cluster.spawn()
        await cluster.create(NewTopic("t", 1, 1))
        await cluster.until(lambda: bool(asked))
        await cluster.kill(broker_name(CLUSTER, 0))
    await cluster.spawn()
    await cluster.ready()
    (surplus,) = asked
    assert surplus not in cluster.replicas()


def never_stops(kind: type[object], hanging: pytest.MonkeyPatch) -> list[object]:
    """Let children of a kind hang when they are told to stop; returns those that were told."""
    asked: list[object] = []

    async def stop(child: object) -> None:
        asked.append(child)
        await asyncio.Event().wait()

    hanging.setattr(kind, "stop", stop)
    return asked


@in_loop
async def test_a_child_that_is_just_being_started_ends_with_its_broker(tmp_path: Path) -> None:
    cluster = RecordingCluster(tmp_path, replica_actors_spare="0")
    await cluster.up()
    may_start = asyncio.Event()

    class Slow(RecordingReplica):
        async def start(self) -> None:
            await may_start.wait()

    cluster.roles[REPLICA] = Slow
    await cluster.create(NewTopic("t", 1, 1))
    await cluster.until(lambda: bool(cluster.replicas()))
    shutdown = asyncio.create_task(cluster.call(0, "shutdown"))
    again = asyncio.create_task(cluster.call(0, "shutdown"))
    await cluster.until(lambda: not cluster.replicas())
    assert not shutdown.done(), "the start may still come through"
    assert not again.done(), "who is told that it is shut down may end the process"
    may_start.set()
    await shutdown
    await again
    assert not [*cluster.gateways(), *cluster.replicas()]
    await cluster.world.stop()
    assert cluster.world.failures == []


# ---- restarts --------------------------------------------------------------------------------


@in_loop
async def test_partitions_are_served_again_after_a_restart(tmp_path: Path) -> None:
    cluster = RecordingCluster(tmp_path)
    await cluster.up()
    (outcome,) = await cluster.create(NewTopic("t", 2, 1))
    await cluster.routes(2)
    await cluster.down()
    cluster.new_world()
    await cluster.up()
    assert set(await cluster.routes(2)) == {(outcome.topic_id, 0), (outcome.topic_id, 1)}
    assert (await cluster.describe()).restarts == 0
    await cluster.down()


def test_unknown_directories_are_renamed_to_strays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also when the same one strays again, and while the disk does not let it be renamed."""
    topics = tmp_path / "b0" / "topics"
    unknown = topics / "gone-0.AAECAwQFBgcICQoLDA0ODw"
    foreign = topics / "lost+found"

    def kept() -> list[Path]:
        return sorted(topics.glob("gone-0.*-stray"))

    async def main() -> None:
        cluster = RecordingCluster(tmp_path)
        await cluster.up()
        await cluster.down()
        for number in (1, 2):
            cluster.new_world()
            unknown.mkdir()
            (unknown / "00000000000000000000.log").write_bytes(b"records" * 1_000)
            foreign.mkdir(exist_ok=True)
            await cluster.up()
            await cluster.until(lambda: not unknown.exists())
            assert len(kept()) == number
            status = await cluster.describe()
            assert [one.directory for one in status.strays] == [str(one) for one in kept()]
            assert all(one.size_bytes >= 7_000 for one in status.strays)
            await cluster.down()
        assert foreign.is_dir()
        assert all(len(list(one.iterdir())) == 1 for one in kept())

    asyncio.run(main())
    assert f"{unknown} belongs to no partition here and is kept as {kept()[0]}" in caplog.text


def test_a_stray_that_cannot_be_set_aside_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(child_processes, "KEEP_AGAIN_MS", 1)
    unknown = tmp_path / "b0" / "topics" / "gone-0.AAECAwQFBgcICQoLDA0ODw"
    failures = [OSError(errno.EIO, "Input/output error")] * 3

    def failing(disk: OsDisk, source: str, target: str) -> None:
        if failures:
            raise failures.pop()
        os.rename(source, target)

    async def story(cluster: RecordingCluster) -> None:
        await cluster.down()
        cluster.new_world()
        unknown.mkdir()
        monkeypatch.setattr(OsDisk, "move_tree", failing)
        await cluster.up()
        await cluster.until(lambda: not unknown.exists())

    tell(story, tmp_path)
    assert f"{unknown} is a stray and cannot be set aside: [Errno 5]" in caplog.text
    assert len(list(unknown.parent.glob("gone-0.*-stray"))) == 1


@in_world(tell, TMP_PATH)
async def test_a_broker_the_controller_fenced_serves_again(cluster: RecordingCluster) -> None:
    await cluster.create(NewTopic("t", 1, 1))
    await cluster.routes(1)
    (gateway,) = cluster.gateways()
    before = gateway.image.offset
    controller = cluster.world.resident(controller_name(CLUSTER)).actor
    assert isinstance(controller, ControllerActor)
    assert controller._term is not None
    brokers = controller._term.machine.brokers
    controller._append(controller._term, brokers._fenced(gateway.image.brokers[0]).records)
    await cluster.until(lambda: gateway.image.offset > before + 2)
    await cluster.routes(1)
    await cluster.until(lambda: not gateway.image.brokers[0].fenced)


@in_world(tell, TMP_PATH)
async def test_a_broker_the_controller_forgot_registers_anew(cluster: RecordingCluster) -> None:
    await cluster.create(NewTopic("t", 1, 1))
    await cluster.routes(1)
    (gateway,) = cluster.gateways()
    before = gateway.image.brokers[0].broker_epoch
    await cluster.ask_controller("unregister_broker", 0)

    def is_back() -> bool:
        broker = gateway.image.brokers.get(0)
        return broker is not None and broker.broker_epoch > before and broker.is_live

    await cluster.until(is_back)
    await cluster.routes(1)
    assert (await cluster.describe()).state == "running"


@in_world(tell, TMP_PATH, brokers=3)
async def test_three_brokers_share_the_partitions(cluster: RecordingCluster) -> None:
    await cluster.create(NewTopic("t", 6, 1))
    for broker_id in range(3):
        assert len(await cluster.routes(2, broker_id)) == 2
    assert [(await cluster.describe(one)).is_voter for one in range(3)] == [True, False, False]


# ---- refusals --------------------------------------------------------------------------------


@in_loop
async def test_a_port_that_is_taken_is_an_error_of_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        cluster = RecordingCluster(tmp_path)
        with pytest.raises(InvalidConfig, match=f"cannot listen on PLAINTEXT://127.0.0.1:{port}"):
            await cluster.spawn(listeners=f"PLAINTEXT://127.0.0.1:{port}")
    await cluster.spawn(listeners=f"PLAINTEXT://127.0.0.1:{port}")  # the directory is free
    await cluster.ready()
    await cluster.down()


@in_world(tell, TMP_PATH)
async def test_a_directory_serves_one_broker_process(
    cluster: RecordingCluster, *, tmp_path: Path
) -> None:
    second = RecordingCluster(tmp_path)
    with pytest.raises(KafkaStorageError, match="in use by another broker process"):
        await second.spawn()


@in_loop
async def test_a_directory_of_another_broker_or_cluster_is_refused(tmp_path: Path) -> None:
    cluster = RecordingCluster(tmp_path)
    await cluster.up()
    await cluster.down()
    cluster.new_world()
    (tmp_path / "b0").rename(tmp_path / "b1")
    with pytest.raises(InvalidConfig, match="belongs to broker 0, not 1"):
        await cluster.spawn(1)
    meta = tmp_path / "b1" / "meta.json"
    meta.write_text(meta.read_text().replace(f'"{CLUSTER}"', '"other"'))
    with pytest.raises(InconsistentClusterId, match="belongs to cluster other"):
        await cluster.spawn(1)


@in_loop
async def test_a_second_directory_of_a_live_broker_says_why_it_is_not_ready(tmp_path: Path) -> None:
    cluster = RecordingCluster(tmp_path, brokers=2)
    await cluster.up()
    second = RecordingCluster(tmp_path / "second", brokers=2)
    second.world = cluster.world
    second.runtime = cluster.runtime
    await cluster.kill(broker_name(CLUSTER, 1))
    await second.spawn(1)
    with pytest.raises(DuplicateBrokerRegistration, match="broker id 1"):
        await second.call(1, "ready", 5_000)
    await cluster.world.stop()


@in_loop
async def test_a_broker_without_a_controller_is_not_ready(tmp_path: Path) -> None:
    cluster = RecordingCluster(tmp_path, brokers=2)
    await cluster.spawn(1)  # broker 0 would hold the metadata log
    with pytest.raises(BrokerNotAvailable, match="broker 1 is still starting"):
        await cluster.call(1, "ready", 20)
    with pytest.raises(InvalidRequest, match="holds no metadata log"):
        await cluster.call(1, "voter_state")
    await cluster.spawn(0)
    await cluster.ready()
    with pytest.raises(ActorGone):
        await cluster.runtime.find("nobody")
    await cluster.down()


@in_world(tell, TMP_PATH)
async def test_shutting_down_twice_is_shutting_down_once(cluster: RecordingCluster) -> None:
    await cluster.call(0, "shutdown")
    assert (await cluster.describe()).state == "shut down"
    assert [*cluster.gateways(), *cluster.replicas()] == []


@in_loop
async def test_a_broker_stops_without_its_controller(tmp_path: Path) -> None:
    cluster = RecordingCluster(tmp_path, brokers=2)
    await cluster.up()
    actor = cluster.world.resident(broker_name(CLUSTER, 0)).actor
    assert isinstance(actor, BrokerActor)
    await cluster.call(0, "shutdown")
    await cluster.kill(controller_name(CLUSTER))
    await cluster.call(1, "shutdown")
    await cluster.world.stop()
