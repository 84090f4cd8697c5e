"""A gateway in a Replica process: which process it gets, and what happens when either ends."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from raylog.actors.broker.rules import pool
from raylog.actors.broker.rules.effects import (
    ColocateGateway,
    Effect,
    EndReplica,
    OpenPartitions,
    SpawnReplica,
)
from raylog.actors.broker.rules.machine import BrokerMachine
from raylog.actors.broker.rules.pool import ReplicaPool, colocates_gateway, gateways_of
from raylog.actors.common_messages import PartitionKey, TopicId
from raylog.actors.config import BrokerSettings, ResourceType
from raylog.actors.controller.messages import MetadataUpdate, NewTopic
from raylog.actors.metadata.records import (
    ConfigChanged,
    PartitionCreated,
    Record,
    TopicCreated,
    TopicDeleted,
)
from raylog.actors.names import broker_name, host_of
from raylog.actors.runtime.base import Runtime
from raylog.wire.errors import InvalidConfig
from tests.worlds.broker.recording import CLUSTER, RecordingCluster, RecordingGateway
from tests.worlds.decorators import TMP_PATH, in_world

R0, R1, R2 = (f"c/replica/0/{number}" for number in range(3))
T = TopicId(b"t" * 16)
SETTING = "gateway.in.replica.process"


def key(number: int) -> PartitionKey:
    return T, number


# ---- the setting -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "cores", "expected"),
    [
        ({}, 1, True),
        ({}, 2, True),
        ({}, 3, False),
        ({"gateway.actors": "2"}, 2, False),
        ({SETTING: "true"}, 64, True),
        ({SETTING: "false"}, 1, False),
        ({SETTING: "false", "gateway.actors": "2"}, 1, False),
        ({"gateway.actors": "auto"}, 2, True),
        ({"gateway.actors": "auto"}, 4, False),
    ],
)
def test_the_gateway_lodges_where_cores_are_few(
    given: dict[str, str], cores: int, expected: bool
) -> None:
    assert colocates_gateway(BrokerSettings(given), cores) is expected


def test_several_gateways_cannot_lodge() -> None:
    with pytest.raises(InvalidConfig, match=r"gateway\.actors must be 1"):
        colocates_gateway(BrokerSettings({SETTING: "true", "gateway.actors": "2"}), 1)


@pytest.mark.parametrize(
    ("given", "cores", "expected"),
    [
        ({}, 64, 1),
        ({"gateway.actors": "3"}, 1, 3),
        *[
            ({"gateway.actors": " auto "}, cores, count)
            for cores, count in ((1, 1), (2, 1), (3, 1), (4, 2), (32, 16), (128, 64), (256, 64))
        ],
    ],
)
def test_gateways_are_as_many_as_given_or_as_half_of_the_cores_carry(
    given: dict[str, str], cores: int, expected: int
) -> None:
    settings = BrokerSettings(given)
    assert gateways_of(settings, cores) == expected
    found = pool.pool_of("c", 1, settings, cores, itertools.count())
    assert found.gateways == expected
    assert found.gateway_count_setting(settings) == (
        {"gateway.actors": str(expected)} if given else {}
    )


@pytest.mark.parametrize("wrong", ["0", "65", "many", "automatic", ""])
def test_another_number_of_gateways_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidConfig, match=r"gateway\.actors"):
        BrokerSettings({"gateway.actors": wrong})


# ---- the pool --------------------------------------------------------------------------------


def pool_of(*names: str, home: str, spares: int = 1, actors_max: int = 1) -> ReplicaPool:
    """A pool of running processes."""
    pool = ReplicaPool(
        "c",
        0,
        actors_max=actors_max,
        spares=spares,
        colocates_gateway=True,
        numbers=itertools.count(len(names)),
    )
    for number, name in enumerate(names):
        pool.adopt(name, number, f"i{number}", f"a{number}")
    pool.home, pool.gateway_runs = home, True
    return pool


def placed(pool: ReplicaPool, number: int, *, dedicated: bool = False) -> str:
    return pool.place(key(number), dedicated=dedicated, internal=False).name


def test_the_home_gets_the_first_partition_and_shares_the_rest() -> None:
    pool = pool_of(R0, R1, home=R1)
    assert [placed(pool, number) for number in range(3)] == [R1, R1, R1]


def test_a_dedicated_partition_does_not_get_the_home() -> None:
    pool = pool_of(R0, home=R0)
    assert [placed(pool, 0, dedicated=True), placed(pool, 1)] == [R1, R0]


def test_an_empty_home_is_no_spare() -> None:
    pool = pool_of(R0, R1, home=R0)
    assert pool.missing_spares() == []
    assert placed(pool, 0, dedicated=True) == R1
    assert [slot.name for slot in pool.missing_spares()] == [R2]


def test_the_home_is_not_ended_as_a_spare_too_many() -> None:
    pool = pool_of(R0, R1, R2, home=R1)
    assert [slot.name for slot in pool.surplus()] == [R2]
    pool = pool_of(R0, R1, home=R0, spares=0)
    assert [slot.name for slot in pool.surplus()] == [R1]


def test_the_best_home_runs_and_is_shared() -> None:
    pool = pool_of(R0, R1, R2, home=R0, actors_max=2)
    placed(pool, 0)
    assert placed(pool, 1) == R1
    assert placed(pool, 2, dedicated=True) == R2
    assert pool.remove(R0) is not None
    assert (pool.home, pool.gateway_runs) == (None, False)
    starting = pool.add()
    starting.partitions.add(key(3))
    assert pool.candidate() is pool.slots[R1]
    pool.remove(R1)
    assert pool.candidate() is starting
    pool.remove(starting.name)
    assert pool.candidate() is None


# ---- the machine -----------------------------------------------------------------------------


class Broker:
    """The machine of broker 0, whose gateway is co-located; its methods feed it events."""

    def __init__(self, *, spares: int = 1, actors_max: int = 1) -> None:
        pool = ReplicaPool("c", 0, actors_max=actors_max, spares=spares, colocates_gateway=True)
        self.machine = BrokerMachine(
            "c", 0, BrokerSettings(), pool, topics_directory="/data/topics", incarnation="b"
        )

    def records(self, *records: Record) -> list[Effect]:
        offset = self.machine.image.offset
        return self.machine.apply(MetadataUpdate(offset, offset + len(records), list(records)))

    def topic(self) -> list[Effect]:
        return self.records(TopicCreated(T, "t"), PartitionCreated(T, 0, (0,), (0,), 0))

    def ready(self, name: str) -> list[Effect]:
        return self.machine.replica_ready(name, f"i-{name}", f"at-{name}")

    def settle(self) -> None:
        """The gateway in R0, the spare R1."""
        self.machine.colocate_gateway()
        self.ready(R0)
        self.machine.gateway_ready(R0)
        self.machine.begin()
        self.ready(R1)


def test_the_gateway_is_housed_before_the_metadata_is_caught_up_and_spares_come_last() -> None:
    broker = Broker()
    assert broker.machine.colocate_gateway() == [SpawnReplica(R0)]
    assert broker.machine.colocate_gateway() == []
    assert broker.ready(R0) == [ColocateGateway(R0)]
    assert broker.topic() == []
    (opening,) = broker.machine.begin()
    assert isinstance(opening, OpenPartitions)
    assert opening.replica == R0
    assert broker.machine.gateway_ready(R0) == [SpawnReplica(R1)]
    assert broker.ready(R1) == []


def test_partitions_found_at_the_start_go_to_the_process_that_will_house_the_gateway() -> None:
    broker = Broker()
    broker.topic()
    assert broker.machine.colocate_gateway() == [SpawnReplica(R0)]
    assert broker.machine.begin() == []
    opening, housing = broker.ready(R0)
    assert isinstance(opening, OpenPartitions)
    assert (opening.replica, housing) == (R0, ColocateGateway(R0))


def test_when_the_home_is_lost_the_gateway_follows_its_partitions() -> None:
    broker = Broker()
    broker.settle()
    broker.topic()
    effects = broker.machine.replica_lost(R0, 0)
    opening, housing = effects[-2:]
    assert isinstance(opening, OpenPartitions)
    assert (opening.replica, housing) == (R1, ColocateGateway(R1))
    assert not any(isinstance(effect, SpawnReplica) for effect in effects)
    assert broker.machine.gateway_failed(R0) == []  # its loss, told behind its host's
    assert broker.machine.gateway_ready(R0) == []  # an answer of the lost one
    assert broker.machine.gateway_ready(R1) == [SpawnReplica(R2)]


def test_an_empty_home_is_succeeded_by_the_spare() -> None:
    broker = Broker()
    broker.settle()
    assert broker.machine.replica_lost(R0, 0) == [ColocateGateway(R1)]
    assert broker.machine.gateway_ready(R1) == [SpawnReplica(R2)]


def test_without_a_spare_the_gateway_waits_for_the_successor() -> None:
    broker = Broker(spares=0)
    broker.machine.colocate_gateway()
    broker.ready(R0)
    assert broker.machine.gateway_ready(R0) == []
    assert broker.machine.begin() == []
    assert broker.machine.replica_lost(R0, 0) == [SpawnReplica(R1)]
    assert broker.ready(R1) == [ColocateGateway(R1)]


def test_a_gateway_that_does_not_start_is_tried_again() -> None:
    broker = Broker()
    broker.settle()
    assert broker.machine.gateway_failed(R0) == [ColocateGateway(R0)]


def test_the_home_outlives_its_last_partition() -> None:
    broker = Broker()
    broker.settle()
    broker.topic()
    effects = broker.records(TopicDeleted(T))
    assert not any(isinstance(effect, EndReplica) for effect in effects)
    assert sorted(broker.machine.pool.slots) == [R0, R1]


def test_a_lost_dedicated_process_is_not_succeeded_by_the_home() -> None:
    broker = Broker()
    broker.settle()
    topic_id = TopicId(b"d" * 16)
    effects = broker.records(
        TopicCreated(topic_id, "d"),
        ConfigChanged(ResourceType.TOPIC, "d", "raylog.replica.dedicated", "true"),
        PartitionCreated(topic_id, 0, (0,), (0,), 0),
    )
    assert effects[0] == SpawnReplica(R2)
    partition = broker.machine.partitions[(topic_id, 0)]
    assert partition.slot == R1
    broker.machine.replica_lost(R1, 0)
    assert partition.slot == R2


# ---- the shell -------------------------------------------------------------------------------

Story = Callable[[RecordingCluster], Awaitable[None]]


def tell(story: Story, directory: Path) -> None:
    async def main() -> None:
        settings = {"gateway.in.replica.process": "true", "replica.actors.max": "0"}
        cluster = RecordingCluster(directory, 1, **settings)
        await cluster.up()
        await cluster.until(lambda: len(cluster.replicas()) == 2)
        await story(cluster)
        await cluster.down()

    asyncio.run(main())


def home(cluster: RecordingCluster) -> str:
    """Where the one gateway lives."""
    (gateway,) = cluster.gateways()
    assert host_of(gateway.name) != gateway.name
    return host_of(gateway.name)


@in_world(tell, TMP_PATH)
async def test_all_partitions_are_in_the_process_of_the_gateway(cluster: RecordingCluster) -> None:
    await cluster.create(NewTopic("t", 5, 1))
    assert set((await cluster.routes(5)).values()) == {home(cluster)}
    status = await cluster.describe()
    assert sorted((one.role, one.state, one.partitions) for one in status.children) == [
        ("gateway", "running", 0),
        ("replica", "running", 5),
        ("replica", "spare", 0),
    ]


@pytest.mark.parametrize("of", [RecordingCluster.gateways, home], ids=["gateway", "replica"])
@in_world(tell, TMP_PATH)
async def test_gateway_and_replica_fail_over_together(
    cluster: RecordingCluster, *, of: Callable[[RecordingCluster], object]
) -> None:
    await cluster.create(NewTopic("t", 2, 1))
    await cluster.routes(2)
    before = home(cluster)
    (spare,) = {replica.name for replica in cluster.replicas()} - {before}
    killed = of(cluster)
    await cluster.kill(killed if isinstance(killed, str) else cluster.gateways()[0].name)
    await cluster.until(lambda: bool(cluster.gateways()))
    assert set((await cluster.routes(2)).values()) == {spare}
    assert home(cluster) == spare
    await cluster.until(lambda: len(cluster.replicas()) == 2)
    assert before not in {replica.name for replica in cluster.replicas()}
    status = await cluster.describe()
    restarts = {one.name: one.restarts for one in status.children if one.state == "running"}
    assert restarts == {cluster.gateways()[0].name: 1, spare: 1}


@in_world(tell, TMP_PATH)
async def test_a_restarted_broker_adopts_the_lodger_with_its_host(
    cluster: RecordingCluster,
) -> None:
    await cluster.create(NewTopic("t", 2, 1))
    before = dict(await cluster.routes(2))
    children = [*cluster.gateways(), *cluster.replicas()]
    await cluster.kill(broker_name(CLUSTER, 0))
    await cluster.spawn()
    await cluster.ready()
    assert [*cluster.gateways(), *cluster.replicas()] == children
    assert await cluster.routes(2) == before
    await cluster.kill(home(cluster))
    await cluster.until(lambda: bool(cluster.gateways()))
    assert home(cluster) not in before.values()


@in_world(tell, TMP_PATH)
async def test_a_lodger_that_went_down_with_its_host_and_broker_is_started_elsewhere(
    cluster: RecordingCluster,
) -> None:
    await cluster.create(NewTopic("t", 2, 1))
    await cluster.routes(2)
    before = home(cluster)
    await cluster.kill(broker_name(CLUSTER, 0))
    await cluster.kill(before)
    await cluster.spawn()
    await cluster.ready()
    assert home(cluster) != before
    assert set((await cluster.routes(2)).values()) == {home(cluster)}


def test_a_lodger_that_cannot_start_is_tried_again_in_the_same_process(tmp_path: Path) -> None:
    starts: list[str] = []

    class Failing(RecordingGateway):
        def __init__(self, runtime: Runtime, *, name: str, **args: object) -> None:
            starts.append(host_of(name))
            if len(starts) == 1:
                raise OSError("no port")
            super().__init__(runtime, name=name, **args)

    async def main() -> None:
        cluster = RecordingCluster(tmp_path, gateway_in_replica_process="true")
        cluster.roles["gateway"] = Failing
        await cluster.up()
        assert starts == [home(cluster)] * 2
        await cluster.down()

    asyncio.run(main())


def test_at_the_end_the_lodger_leaves_before_the_logs_are_closed(tmp_path: Path) -> None:
    seen: list[tuple[str, bool]] = []

    async def story(cluster: RecordingCluster) -> None:
        (housing,) = [one for one in cluster.replicas() if one.name == home(cluster)]
        (gateway,) = cluster.gateways()

        async def stop() -> None:
            seen.append(("gateway", housing.stopped))

        gateway.stop = stop  # type: ignore[method-assign]  # only this one
        await cluster.call(0, "shutdown")
        assert seen == [("gateway", False)]
        assert housing.stopped

    tell(story, tmp_path)


# ---- a gateway that had a process of its own -------------------------------------------------


def tell_apart(story: Story, directory: Path) -> None:
    async def main() -> None:
        cluster = RecordingCluster(directory, 1, **{"gateway.in.replica.process": "false"})
        await cluster.up()
        await cluster.create(NewTopic("t", 2, 1))
        await cluster.routes(2)
        await cluster.until(lambda: len(spares(cluster)) == 1)
        await story(cluster)
        await cluster.down()
        assert not cluster.gateways()
        assert not cluster.replicas()

    asyncio.run(main())


def spares(cluster: RecordingCluster) -> list[str]:
    """Replica processes that hold no partition."""
    (gateway,) = cluster.gateways()
    return [one.name for one in cluster.replicas() if one.name not in gateway.routes.values()]


async def lose_gateway(cluster: RecordingCluster) -> None:
    """Kill the gateway and wait for the next."""
    (before,) = cluster.gateways()
    await cluster.kill(before.name)
    await cluster.until(lambda: cluster.gateways() not in ([], [before]))
    await cluster.routes(2)


@in_world(tell_apart, TMP_PATH)
async def test_successor_of_the_gateway_moves_into_the_spare(
    cluster: RecordingCluster,
) -> None:
    (spare,) = spares(cluster)
    await lose_gateway(cluster)
    assert home(cluster) == spare
    await cluster.until(lambda: len(cluster.replicas()) == 4)
    states = [one.state for one in (await cluster.describe()).children]
    assert sorted(states) == ["host", "running", "running", "running", "spare"]
    await cluster.create(NewTopic("u", 4, 1))
    assert spare not in (await cluster.routes(6)).values()


@in_world(tell_apart, TMP_PATH)
async def test_the_spare_is_left_with_its_gateway(cluster: RecordingCluster) -> None:
    await lose_gateway(cluster)
    first = home(cluster)
    await cluster.until(lambda: len(cluster.replicas()) == 4)
    await lose_gateway(cluster)
    assert home(cluster) != first
    await cluster.until(lambda: len(cluster.replicas()) == 4)
    assert first not in [one.name for one in cluster.replicas()]


@in_world(tell_apart, TMP_PATH)
async def test_a_restarted_broker_leaves_the_gateway_where_it_is(cluster: RecordingCluster) -> None:
    await lose_gateway(cluster)
    await cluster.until(lambda: len(cluster.replicas()) == 4)
    children = [*cluster.gateways(), *cluster.replicas()]
    await cluster.kill(broker_name(CLUSTER, 0))
    await cluster.spawn()
    await cluster.ready()
    assert [*cluster.gateways(), *cluster.replicas()] == children
    await cluster.create(NewTopic("u", 4, 1))
    assert home(cluster) not in (await cluster.routes(6)).values()


@in_world(tell_apart, TMP_PATH)
async def test_failed_gateway_start_is_retried_in_the_spare(
    cluster: RecordingCluster,
) -> None:
    working = cluster.roles["gateway"]

    def failing(*_: object, **__: object) -> object:
        cluster.roles["gateway"] = working
        raise OSError("no port")

    cluster.roles["gateway"] = failing
    (spare,) = spares(cluster)
    await lose_gateway(cluster)
    assert home(cluster) == spare
