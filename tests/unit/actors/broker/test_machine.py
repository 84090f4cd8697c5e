"""A broker's decisions about its partitions, as whole lists of effects."""

from unittest.mock import ANY

import pytest

from raylog.actors.backoff import LOSSES_AT_ONCE
from raylog.actors.broker.rules.effects import (
    ClosePartitions,
    ConfigurePartitions,
    EndReplica,
    KeepStrays,
    LeadPartitions,
    OpenPartitions,
    RemoveDirectories,
    ReportLost,
    ReportOpened,
    RetryLater,
    SendRoutes,
    SpawnReplica,
)
from raylog.actors.broker.rules.machine import RETRY_OPEN_MS, Phase
from raylog.actors.common_messages import (
    OpenedPartition,
    PartitionStatus,
    TopicConfig,
    TopicId,
)
from raylog.actors.config import ResourceType
from raylog.actors.controller.messages import MetadataUpdate, OpenedReplica
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import (
    NO_LEADER,
    BrokerRegistered,
    ConfigChanged,
    PartitionChanged,
    PartitionCreated,
    Record,
    TopicCreated,
    TopicDeleted,
)
from raylog.wire.uuids import to_base64
from tests.worlds.broker.machine import (
    CONFIG,
    R0,
    R1,
    R2,
    Broker,
    T,
    U,
    configured,
    directory,
    leadership,
    opening,
    route,
    routed,
    unrouted,
)
from tests.worlds.metadata import image_of


def settled(broker: Broker) -> bool:
    return broker.machine.is_settled


def test_a_partition_on_its_way_to_a_route() -> None:
    broker = Broker()
    assert broker.begin() == []
    assert broker.topic() == [SpawnReplica(R0)]
    assert broker.ready(R0) == [OpenPartitions(R0, [opening("t", T, 0)])]
    incarnation = f"i-{R0}@b.1"
    assert broker.opened(R0, (T, 0)) == [ReportOpened([OpenedReplica(T, 0, incarnation)])]
    assert not settled(broker)
    led = leadership(T, 0)
    assert broker.records(PartitionChanged(T, 0, incarnations={0: incarnation})) == [
        LeadPartitions(R0, [led])
    ]
    assert settled(broker)
    assert (broker.machine.serves, broker.machine.routes()) == (False, [])
    assert broker.machine.led(R0, [led]) == [routed(route("t", T, 0, R0))]
    assert broker.machine.serves
    assert broker.machine.routes() == [route("t", T, 0, R0)]


def test_many_partitions_are_few_calls() -> None:
    broker = Broker(actors_max=2)
    broker.begin()
    assert broker.topic(partitions=500) == [SpawnReplica(R0), SpawnReplica(R1)]
    first, second = broker.ready(R0), broker.ready(R1)
    sizes = [len(one.partitions) for one in [*first, *second] if isinstance(one, OpenPartitions)]
    assert sizes == [200, 50, 200, 50]
    keys = [(T, at) for at in range(0, 500, 2)]
    (report,) = broker.opened(R0, *keys)
    assert isinstance(report, ReportOpened)
    assert len(report.opened) == 250
    (confirmed,) = broker.confirmed(*keys)
    assert isinstance(confirmed, LeadPartitions)
    (routes,) = broker.machine.led(R0, confirmed.leaderships)
    assert isinstance(routes, SendRoutes)
    assert len(routes.update.added) == 250


def test_nothing_is_done_before_the_metadata_is_caught_up() -> None:
    broker = Broker(spares=1)
    assert broker.topic() == []
    assert not settled(broker)
    assert broker.begin() == [SpawnReplica(R0)]


def test_spares_are_started_once_no_partition_waits_for_a_process() -> None:
    broker = Broker(spares=1)
    broker.topic()
    broker.begin()
    assert broker.ready(R0) == [SpawnReplica(R1), OpenPartitions(R0, [opening("t", T, 0)])]


def test_partitions_of_other_brokers_are_none_of_ours() -> None:
    broker = Broker()
    broker.begin()
    assert broker.records(TopicCreated(T, "t"), PartitionCreated(T, 0, (1,), (1,), 1)) == []
    assert broker.machine.serves


def test_old_metadata_changes_nothing() -> None:
    broker = Broker()
    broker.begin()
    broker.topic()
    assert broker.machine.apply(MetadataUpdate(0, 1, [TopicDeleted(T)])) == []
    assert T in broker.machine.image.topics


def test_a_spare_takes_the_next_partition_and_is_replaced() -> None:
    broker = Broker(actors_max=2, spares=1)
    assert broker.begin() == [SpawnReplica(R0)]
    broker.ready(R0)
    assert broker.topic() == [SpawnReplica(R1), OpenPartitions(R0, [opening("t", T, 0)])]


# ---- leadership ------------------------------------------------------------------------------


def test_a_new_leader_epoch_renews_the_route_once_it_was_taken_in() -> None:
    broker = Broker()
    broker.begin()
    broker.serve()
    led = leadership(T, 0, epoch=1, partition_epoch=2)
    assert broker.records(PartitionChanged(T, 0, leader=0)) == [LeadPartitions(R0, [led])]
    assert not broker.machine.serves
    assert broker.machine.led(R0, [led]) == [routed(route("t", T, 0, R0, epoch=1))]


def test_a_route_is_taken_back_as_soon_as_another_leads() -> None:
    broker = Broker()
    broker.begin()
    broker.serve()
    led = leadership(T, 0, leader=1, epoch=1, partition_epoch=2, replicas=(0, 1), isr=(0, 1))
    change = PartitionChanged(T, 0, leader=1, isr=(0, 1), replicas=(0, 1))
    assert broker.records(change) == [unrouted((T, 0)), LeadPartitions(R0, [led])]
    follows = route("t", T, 0, R0, epoch=1, leads=False)
    assert broker.machine.led(R0, [led]) == [routed(follows)]
    assert broker.machine.leader_addresses([(T, 0)]) == [""]
    assert broker.machine.serves


def test_an_answer_that_metadata_has_overtaken_gives_no_route() -> None:
    broker = Broker()
    broker.begin()
    broker.topic()
    broker.ready(R0)
    broker.opened(R0, (T, 0))
    broker.confirmed((T, 0))
    broker.records(PartitionChanged(T, 0, leader=NO_LEADER))
    assert broker.machine.led(R0, [leadership(T, 0)]) == []


def test_a_follower_is_told_its_leader_and_consumers_may_read_from_it() -> None:
    broker = Broker()
    broker.begin()
    broker.records(TopicCreated(T, "t"), PartitionCreated(T, 0, (1, 0), (1, 0), 1))
    broker.ready(R0)
    broker.opened(R0, (T, 0))
    led = leadership(T, 0, leader=1, replicas=(1, 0), isr=(1, 0))
    assert broker.confirmed((T, 0)) == [LeadPartitions(R0, [led])]
    follows = route("t", T, 0, R0, leads=False)
    assert broker.machine.led(R0, [led]) == [routed(follows)]
    assert broker.machine.routes() == [follows]
    assert broker.machine.leader_addresses([(T, 0)]) == [""]


def test_a_follower_keeps_its_route_until_it_leads() -> None:
    broker = Broker()
    broker.begin()
    broker.records(TopicCreated(T, "t"), PartitionCreated(T, 0, (1, 0), (1, 0), 1))
    broker.ready(R0)
    broker.opened(R0, (T, 0))
    broker.confirmed((T, 0))
    broker.machine.led(R0, [leadership(T, 0, leader=1, replicas=(1, 0), isr=(1, 0))])
    change = PartitionChanged(T, 0, leader=0, isr=(0,))
    led = leadership(T, 0, epoch=1, partition_epoch=2, replicas=(1, 0))
    assert broker.records(change) == [LeadPartitions(R0, [led])]
    assert not broker.machine.serves
    assert broker.machine.led(R0, [led]) == [routed(route("t", T, 0, R0, epoch=1))]
    assert broker.machine.leader_addresses([(T, 0)]) == [f"at-{R0}"]
    nobody = broker.records(PartitionChanged(T, 0, leader=NO_LEADER))
    assert unrouted((T, 0)) in nobody
    assert broker.machine.serves


# ---- losses ----------------------------------------------------------------------------------


def test_spare_takes_the_partitions_of_a_lost_process_as_a_new_incarnation() -> None:
    broker = Broker(spares=1)
    broker.begin()
    broker.ready(R0)
    assert broker.serve() == R0
    broker.ready(R1)
    assert broker.machine.replica_lost(R0, 0) == [
        unrouted((T, 0)),
        ReportLost([(T, 0)]),
        SpawnReplica(R2),
        OpenPartitions(R1, [opening("t", T, 0, again=True)]),
    ]
    assert broker.machine.pool.slots[R1].restarts == 1
    assert broker.machine.opened(R0, [OpenedPartition(T, 0)]) == []  # too late
    incarnation = f"i-{R1}@b.2"
    assert broker.opened(R1, (T, 0)) == [ReportOpened([OpenedReplica(T, 0, incarnation)])]
    led = leadership(T, 0, epoch=1, partition_epoch=2, incarnation=incarnation)
    change = PartitionChanged(T, 0, leader=0, incarnations={0: incarnation})
    assert broker.records(change) == [LeadPartitions(R1, [led])]
    assert broker.machine.led(R0, [led]) == []  # an answer of the lost one
    assert broker.machine.led(R1, [led]) == [routed(route("t", T, 0, R1, epoch=1))]


def test_without_a_spare_a_successor_is_started() -> None:
    broker = Broker()
    broker.begin()
    broker.serve()
    assert broker.machine.replica_lost(R0, 0) == [
        unrouted((T, 0)),
        ReportLost([(T, 0)]),
        SpawnReplica(R1),
    ]
    assert broker.ready(R1) == [OpenPartitions(R1, [opening("t", T, 0, again=True)])]


def test_a_lost_spare_is_replaced() -> None:
    broker = Broker(spares=1)
    broker.begin()
    assert broker.machine.replica_lost(R0, 0) == [SpawnReplica(R1)]
    assert broker.machine.replica_lost(R0, 0) == []
    assert broker.ready(R0) == [EndReplica(R0)]  # it was given up meanwhile


def replaced(offset: int, records: list[Record]) -> tuple[MetadataUpdate, MetadataImage]:
    """A snapshot, as it comes when it is decoded."""
    return MetadataUpdate(-1, offset, []), image_of(offset, records)


def test_processes_that_keep_dying_are_started_ever_more_slowly() -> None:
    broker = Broker(spares=1)
    (effect,) = broker.begin()
    delays = []
    for at in range(LOSSES_AT_ONCE + 3):
        assert isinstance(effect, SpawnReplica)
        delays.append(effect.delay_ms)
        (effect,) = broker.machine.replica_lost(effect.name, 1_000 + at)
    assert delays == [0, *[0] * LOSSES_AT_ONCE, 1_000, 2_000]
    assert effect == SpawnReplica("c/replica/0/8", 4_000)
    (later,) = broker.machine.replica_lost("c/replica/0/8", 100_000)
    assert later == SpawnReplica("c/replica/0/9", 0)


def test_a_log_that_cannot_be_opened_is_tried_again_and_keeps_nobody_waiting() -> None:
    broker = Broker()
    broker.begin()
    broker.topic(partitions=2)
    broker.ready(R0)
    effects = broker.machine.opened(
        R0, [OpenedPartition(T, 0, error="broken"), OpenedPartition(T, 1)]
    )
    incarnation = f"i-{R0}@b.2"
    assert effects == [
        ReportLost([(T, 0)]),
        ReportOpened([OpenedReplica(T, 1, incarnation)]),
        RetryLater(RETRY_OPEN_MS),
    ]
    broker.confirmed((T, 1))
    assert settled(broker)
    assert broker.machine.retry() == [OpenPartitions(R0, [opening("t", T, 0)])]
    assert not settled(broker)
    assert broker.machine.retry() == []


def test_a_log_whose_disk_failed_leads_no_more_and_is_opened_anew() -> None:
    broker = Broker()
    broker.begin()
    broker.serve()
    assert broker.machine.failed(R0, [(T, 0)]) == [
        unrouted((T, 0)),
        ReportLost([(T, 0)]),
        RetryLater(RETRY_OPEN_MS),
    ]
    assert broker.machine.failed(R0, [(T, 0)]) == []
    assert settled(broker)
    assert broker.machine.retry() == [OpenPartitions(R0, [opening("t", T, 0, again=True)])]
    assert broker.machine.failed("another", [(T, 0)]) == []


# ---- going away ------------------------------------------------------------------------------


def test_a_deleted_topic_is_closed_and_its_directory_removed() -> None:
    broker = Broker()
    broker.begin()
    broker.serve()
    assert broker.records(TopicDeleted(T)) == [
        unrouted((T, 0)),
        ClosePartitions(R0, [(T, 0)], [directory("t", T, 0)]),
        EndReplica(R0),
    ]
    assert broker.machine.partitions == {}


def test_a_partition_deleted_while_it_opens_is_closed_behind_that() -> None:
    broker = Broker(spares=1)
    broker.begin()
    broker.ready(R0)
    broker.topic()
    assert broker.records(TopicDeleted(T)) == [
        ClosePartitions(R0, [(T, 0)], [directory("t", T, 0)])
    ]
    assert broker.opened(R0, (T, 0)) == []


def test_a_partition_deleted_before_it_opens_is_only_removed() -> None:
    broker = Broker()
    broker.begin()
    broker.topic()
    assert broker.records(TopicDeleted(T)) == [RemoveDirectories([directory("t", T, 0)])]
    assert broker.ready(R0) == [EndReplica(R0)]


def test_a_partition_that_moved_to_another_broker_is_removed() -> None:
    broker = Broker(spares=1)
    broker.begin()
    broker.ready(R0)
    broker.serve()
    effects = broker.records(PartitionChanged(T, 0, leader=1, isr=(1,), replicas=(1,)))
    assert effects == [
        unrouted((T, 0)),
        ClosePartitions(R0, [(T, 0)], [directory("t", T, 0)]),
    ]


def test_a_partition_that_comes_back_is_opened_once_its_old_directory_is_gone() -> None:
    broker = Broker(spares=1)
    broker.begin()
    broker.ready(R0)
    broker.serve()
    path = directory("t", T, 0)
    broker.records(PartitionChanged(T, 0, leader=1, isr=(1,), replicas=(1,)))
    effects = broker.records(PartitionChanged(T, 0, replicas=(1, 0)))
    assert not [one for one in effects if isinstance(one, OpenPartitions)]
    assert not settled(broker)
    assert broker.machine.removed([path]) == [OpenPartitions(R0, [opening("t", T, 0)])]
    assert broker.machine.removed([path]) == []


@pytest.mark.parametrize("is_shown", [True, False])
def test_partition_reassigned_away_and_back_is_reported_again(
    is_shown: bool,
) -> None:
    broker = Broker(spares=1)
    broker.begin()
    broker.ready(R0)
    broker.topic()
    broker.opened(R0, (T, 0))
    incarnation = f"i-{R0}@b.1"
    if is_shown:
        broker.records(PartitionChanged(T, 0, incarnations={0: incarnation}))
    effects = broker.records(
        PartitionChanged(T, 0, leader=1, isr=(1,), replicas=(1,)),
        PartitionChanged(T, 0, replicas=(0, 1), adding_replicas=(0,)),
    )
    assert effects == [ReportOpened([OpenedReplica(T, 0, incarnation)])]
    [effect] = broker.records(PartitionChanged(T, 0, incarnations={0: incarnation}))
    assert isinstance(effect, LeadPartitions)


def test_broker_removes_directories_that_a_lost_process_was_closing() -> None:
    broker = Broker(spares=1)
    broker.begin()
    broker.ready(R0)
    broker.serve()
    path = directory("t", T, 0)
    broker.records(PartitionChanged(T, 0, leader=1, isr=(1,), replicas=(1,)))
    broker.records(PartitionChanged(T, 0, replicas=(1, 0)))
    assert RemoveDirectories([path]) in broker.machine.replica_lost(R0, 0)
    away_again = broker.records(PartitionChanged(T, 0, replicas=(1,)))
    assert not [one for one in away_again if isinstance(one, RemoveDirectories)]


def test_a_stray_directory_is_not_opened_before_it_is_gone() -> None:
    broker = Broker(spares=1)
    path = directory("t", T, 0)
    assert broker.machine.strays([path.rpartition("/")[2]], []) == [path]
    broker.begin()
    broker.ready(R0)
    assert not [one for one in broker.topic() if isinstance(one, OpenPartitions)]
    assert broker.machine.removed([path]) == [OpenPartitions(R0, [opening("t", T, 0)])]


def test_a_topic_that_comes_back_under_its_name_has_another_directory() -> None:
    broker = Broker(spares=1)
    broker.begin()
    broker.ready(R0)
    broker.serve()
    broker.records(TopicDeleted(T))
    assert broker.topic("t", U) == [OpenPartitions(R0, [opening("t", U, 0)])]
    assert directory("t", U, 0) != directory("t", T, 0)


def test_a_snapshot_is_compared_with_what_is_here() -> None:
    broker = Broker(actors_max=2)
    broker.begin()
    broker.serve("t", T)
    broker.serve("u", U)
    records: list[Record] = [
        TopicCreated(U, "u"),
        PartitionCreated(U, 0, (0,), (0,), 0, 4, 9, {0: broker.incarnations()[(U, 0)]}),
        PartitionCreated(U, 1, (0,), (0,), 0),
    ]
    led = leadership(U, 0, epoch=4, partition_epoch=9, incarnation=broker.incarnations()[(U, 0)])
    assert broker.machine.apply(*replaced(50, records)) == [
        unrouted((T, 0)),
        ClosePartitions(R0, [(T, 0)], [directory("t", T, 0)], keep=True),
        OpenPartitions(R0, [opening("u", U, 1)]),
        LeadPartitions(R1, [led]),
        ConfigurePartitions(R1, [configured(U)]),
        ConfigurePartitions(R0, [configured(U)]),
    ]


def test_partitions_missing_from_a_snapshot_are_kept_as_strays() -> None:
    """The topic may have been deleted, or the replica moved: this broker has not seen it."""
    broker = Broker(actors_max=1, spares=1)
    broker.begin()
    broker.topic("t", T, partitions=2)
    broker.topic("u", U)
    broker.ready(R0)
    broker.opened(R0, (T, 0), (T, 1), (U, 0))
    moved = PartitionCreated(T, 0, (1,), (1,), 1, 4, 9)
    effects = broker.machine.apply(*replaced(50, [TopicCreated(T, "t"), moved]))
    kept = [directory("t", T, 0), directory("t", T, 1), directory("u", U, 0)]
    assert ClosePartitions(R0, [(T, 0), (T, 1), (U, 0)], kept, keep=True) in effects
    assert not [one for one in effects if isinstance(one, RemoveDirectories)]


def test_unopened_partition_missing_from_a_snapshot_is_kept_at_once() -> None:
    broker = Broker()
    broker.begin()
    broker.topic()
    assert KeepStrays([directory("t", T, 0)]) in broker.machine.apply(*replaced(50, []))


def test_a_stray_that_a_lost_process_had_open_is_kept_by_the_broker() -> None:
    broker = Broker(spares=1)
    broker.begin()
    broker.ready(R0)
    broker.serve()
    broker.machine.apply(*replaced(50, []))
    effects = broker.machine.replica_lost(R0, 0)
    assert KeepStrays([directory("t", T, 0)]) in effects
    assert not [one for one in effects if isinstance(one, RemoveDirectories)]


@pytest.mark.parametrize("is_shown", [True, False])
def test_a_snapshot_that_lacks_an_opening_has_it_reported_again(is_shown: bool) -> None:
    broker = Broker(spares=1)
    broker.begin()
    broker.ready(R0)
    broker.topic()
    broker.opened(R0, (T, 0))
    incarnation = f"i-{R0}@b.1"
    if is_shown:
        broker.records(PartitionChanged(T, 0, incarnations={0: incarnation}))
    came_back = PartitionCreated(T, 0, (0, 1), (1,), 1, 4, 9)
    effects = broker.machine.apply(*replaced(50, [TopicCreated(T, "t"), came_back]))
    assert ReportOpened([OpenedReplica(T, 0, incarnation)]) in effects


# ---- settings --------------------------------------------------------------------------------


def test_changed_settings_reach_the_processes_that_hold_the_topic() -> None:
    broker = Broker(actors_max=2)
    broker.begin()
    broker.serve("t", T)
    broker.serve("u", U)
    change = ConfigChanged(ResourceType.TOPIC, "t", "retention.ms", "5")
    own = {"retention.ms": "5"}
    assert broker.records(change) == [ConfigurePartitions(R0, [configured(T, own)])]
    for_all = ConfigChanged(ResourceType.BROKER, "", "log.retention.ms", "6")
    assert broker.records(for_all) == [
        ConfigurePartitions(R0, [configured(T, own)]),
        ConfigurePartitions(R1, [TopicConfig(U, {**CONFIG, "retention.ms": "6"}, {}, ANY)]),
    ]
    assert broker.records(ConfigChanged(ResourceType.TOPIC, "gone", "retention.ms", "5")) == []
    assert broker.records(ConfigChanged(ResourceType.GROUP, "t", "x", "5")) == []


def test_processes_are_told_how_many_partitions_a_topic_has_and_what_says_so() -> None:
    broker = Broker()
    broker.begin()
    broker.topic(partitions=2)
    (effect,) = [one for one in broker.ready(R0) if isinstance(one, OpenPartitions)]
    notes = [(one.noted.partitions, one.noted.metadata_offset) for one in effect.partitions]
    assert notes == [(2, 3), (2, 3)]
    broker.opened(R0, (T, 0), (T, 1))
    grown = broker.records(PartitionCreated(T, 2, (1,), (1,), 1))
    (configured,) = [one for one in grown if isinstance(one, ConfigurePartitions)]
    assert [(one.topic_id, one.noted.partitions) for one in configured.configs] == [(T, 3)]
    assert configured.configs[0].noted.metadata_offset == broker.machine.image.offset


def test_a_topic_is_opened_with_its_own_settings() -> None:
    broker = Broker(actors_max=1, spares=1)
    broker.begin()
    broker.ready(R0)
    effects = broker.records(
        TopicCreated(T, "t"),
        ConfigChanged(ResourceType.TOPIC, "t", "raylog.replica.dedicated", "true"),
        PartitionCreated(T, 0, (0,), (0,), 0),
    )
    own = {"raylog.replica.dedicated": "true"}
    assert effects[1] == OpenPartitions(R0, [opening("t", T, 0, own)])
    assert broker.machine.pool.slots[R0].dedicated


def test_a_long_name_is_cut_to_fit_a_file_name() -> None:
    broker = Broker(spares=1)
    broker.begin()
    broker.ready(R0)
    name = "n" * 249
    (_, opens) = broker.topic(name)
    assert isinstance(opens, OpenPartitions)
    file_name = opens.partitions[0].directory.rpartition("/")[2]
    assert len(file_name) < 255
    assert file_name.endswith(f"-0.{to_base64(T)}")


# ---- a broker process that restarted ---------------------------------------------------------


def status(partition: int, *, topic_id: TopicId = T, offline: bool = False) -> PartitionStatus:
    return PartitionStatus(topic_id, "t", partition, 3, True, 0, 0, 0, 0, 1, offline)


def known(broker: Broker, *incarnations: str) -> None:
    """Metadata with a topic whose partitions were opened as these incarnations."""
    broker.records(
        TopicCreated(T, "t"),
        *(
            PartitionCreated(T, at, (0,), (0,), 0, 3, 1, {0: incarnation})
            for at, incarnation in enumerate(incarnations)
        ),
    )


def test_surviving_processes_go_on_serving_without_a_new_incarnation() -> None:
    broker = Broker()
    known(broker, "i@old.1", "i@old.2")
    broker.machine.pool.adopt(R0, 0, "i", f"at-{R0}")
    leaderships = [leadership(T, at, epoch=3, incarnation=f"i@old.{at + 1}") for at in range(2)]
    assert broker.machine.begin([(R0, [status(0), status(1)])]) == [
        LeadPartitions(R0, leaderships),
        ConfigurePartitions(R0, [configured(T)]),
    ]
    assert settled(broker)
    assert broker.machine.led(R0, leaderships) == [
        routed(route("t", T, 0, R0, epoch=3), route("t", T, 1, R0, epoch=3))
    ]


def test_an_opening_that_was_not_reported_yet_is_reported_now() -> None:
    broker = Broker()
    known(broker, "earlier@old.1")
    broker.machine.pool.adopt(R0, 0, "i", f"at-{R0}")
    assert broker.machine.begin([(R0, [status(0)])]) == [
        ReportOpened([OpenedReplica(T, 0, "i@b.1")]),
        ConfigurePartitions(R0, [configured(T)]),
    ]


def test_partition_that_no_adopted_process_has_open_is_opened_again() -> None:
    broker = Broker()
    known(broker, "i@old.1", "gone@old.1")
    broker.machine.pool.adopt(R0, 0, "i", f"at-{R0}")
    assert broker.machine.begin([(R0, [status(0)])]) == [
        OpenPartitions(R0, [opening("t", T, 1, again=True)]),
        LeadPartitions(R0, [leadership(T, 0, epoch=3, incarnation="i@old.1")]),
        ConfigurePartitions(R0, [configured(T)]),
    ]


def test_settings_that_changed_while_nobody_could_tell_reach_surviving_processes() -> None:
    broker = Broker()
    known(broker, "i@old.1")
    broker.records(ConfigChanged(ResourceType.TOPIC, "t", "retention.ms", "5"))
    broker.machine.pool.adopt(R0, 0, "i", f"at-{R0}")
    own = {"retention.ms": "5"}
    expected = ConfigurePartitions(R0, [configured(T, own)])
    assert expected in broker.machine.begin([(R0, [status(0)])])


def test_open_partition_unknown_to_the_metadata_is_closed_and_kept() -> None:
    broker = Broker(spares=1)
    known(broker)
    broker.machine.pool.adopt(R0, 0, "i", f"at-{R0}")
    assert broker.machine.begin([(R0, [status(0, topic_id=U)])]) == [
        ClosePartitions(R0, [(U, 0)], [directory("t", U, 0)], keep=True)
    ]


def test_a_log_that_is_offline_stays_so_until_it_is_opened_again() -> None:
    broker = Broker()
    known(broker, "i@old.1")
    broker.machine.pool.adopt(R0, 0, "i", f"at-{R0}")
    assert broker.machine.begin([(R0, [status(0, offline=True)])]) == [ReportLost([(T, 0)])]
    assert broker.machine.partitions[(T, 0)].phase is Phase.FAILED


def test_under_a_new_broker_epoch_what_may_be_lost_is_reported_again() -> None:
    broker = Broker()
    broker.begin()
    broker.topic(partitions=2)
    broker.ready(R0)
    broker.opened(R0, (T, 0), (T, 1))
    broker.confirmed((T, 0))
    assert broker.machine.registered() == [ReportOpened([OpenedReplica(T, 1, f"i-{R0}@b.2")])]


@pytest.mark.parametrize("held", [[], [status(7)]])
def test_directories_of_no_partition_here_are_strays(held: list[PartitionStatus]) -> None:
    broker = Broker()
    broker.records(BrokerRegistered(0, 0, "h", 1, None, "d", "i", fenced=False))
    known(broker, "i@old.1")
    names = [directory("t", T, at).rpartition("/")[2] for at in (0, 7)]
    others = ["lost+found", f"{names[1]}.1700000000000-stray", "t-7"]
    strays = broker.machine.strays([*names, *others], held)
    assert strays == ([directory("t", T, 7)] if not held else [])


def test_followers_elsewhere_find_the_process_that_leads() -> None:
    broker = Broker()
    broker.begin()
    assert broker.machine.leader_addresses([(T, 0)]) == [""]
    name = broker.serve()
    address = broker.machine.pool.slots[name].address
    assert address
    assert broker.machine.leader_addresses([(T, 0), (T, 1), (U, 0)]) == [address, "", ""]
