"""The project's promises about consumers and groups, quoted by the tests.

Each row of the promises about clients is in `ROWS`, with the tests that show it.
"""

import ast
import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from raylog.client import BlockingClient, Consumer, InvalidSetting, NewTopic, TopicPartition
from raylog.client.consumer.settings import ConsumerSettings
from raylog.client.coordinators import Coordinators
from raylog.client.core import Core
from raylog.client.io import run_blocking
from raylog.client.producer.core import ProducerCore
from raylog.client.settings import ProducerSettings
from raylog.testing import EmbeddedBroker
from raylog.wire.api import ApiKey
from raylog.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from raylog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from raylog.wire.messages.metadata import MetadataRequest
from raylog.wire.messages.produce import ProduceRequest
from tests.worlds.client.cluster import NOTHING, FakeCluster, core_of
from tests.worlds.client.producer_partitions import Logs

TESTS = Path(__file__).parents[2]
PATIENCE_MS = 20_000

_ASSIGNORS = "unit/assignors/test_documented_assignments.py"
_CLASSIC = "unit/client/consumer/test_classic_member.py"
_BROKER = "unit/client/consumer/test_on_a_broker.py"
_FETCHED = "unit/client/test_fetched.py"
_HERE = "unit/client/test_consumer_promises.py"
_OWN = "conformance/test_own_transactions.py"
_PRODUCER = "unit/client/test_producer_promises.py"
_ENGINE = "unit/client/parallel/test_engine.py"
_WINDOW = "property/test_parallel_window.py"

ROWS = {
    # assignment
    "range; C0, C1 both subscribe t0, t1": [
        f"{_ASSIGNORS}::test_range_with_two_members_and_two_topics_of_three_partitions"
    ],
    "roundrobin; same group": [f"{_ASSIGNORS}::test_roundrobin_with_the_same_group"],
    "roundrobin; t0,t1,t2 with 1,2,3 partitions": [
        f"{_ASSIGNORS}::test_roundrobin_with_unequal_subscriptions"
    ],
    "sticky; same": [f"{_ASSIGNORS}::test_sticky_with_unequal_subscriptions"],
    "sticky, in general": [
        f"{_ASSIGNORS}::test_sticky_is_even_first_and_then_moves_little",
        f"{_ASSIGNORS}::test_where_evenness_and_stickiness_conflict_evenness_wins",
    ],
    "7 partitions, group grows 1 → 2 → 3 → 8 members": [
        f"{_ASSIGNORS}::test_seven_partitions_while_a_group_grows_to_eight"
    ],
    "one topic, 4 partitions, group A of 4 and group B of 2": [
        f"{_ASSIGNORS}::test_two_groups_of_four_and_two_on_four_partitions_do_not_see_each_other"
    ],
    "custom assignor": [
        f"{_ASSIGNORS}::test_a_custom_assignor_gets_and_gives_user_data_and_is_called_back",
        f"{_ASSIGNORS}::test_a_custom_assignor_may_give_every_partition_to_every_member",
        f"{_CLASSIC}::test_a_custom_assignor_adds_its_data_and_is_called_back",
    ],
    "one group = a queue; each its own group = publish/subscribe": [
        f"{_ASSIGNORS}::test_consumers_in_one_group_are_a_queue_each_in_its_own_group_publish_subscribe",
        f"{_BROKER}::test_members_share_and_who_stays_takes_over",
    ],
    # the group protocol, as clients see it
    "FindCoordinator, asked of the least loaded node": [
        f"{_HERE}::test_the_least_loaded_node_is_asked_for_the_coordinator"
    ],
    "FindCoordinator → JoinGroup → SyncGroup → Heartbeat": [
        f"{_CLASSIC}::test_the_leader_divides_and_syncs_for_all",
        f"{_CLASSIC}::test_a_follower_syncs_without_an_assignment",
    ],
    "first join carries no member id": [
        f"{_CLASSIC}::test_the_first_join_carries_no_member_id_and_the_next_one_the_given"
    ],
    "only the leader's answer lists the members": [
        f"{_CLASSIC}::test_the_leader_divides_and_syncs_for_all"
    ],
    "only the leader's SyncGroup carries an assignment": [
        f"{_CLASSIC}::test_a_follower_syncs_without_an_assignment"
    ],
    "INCONSISTENT_GROUP_PROTOCOL": [
        f"{_CLASSIC}::test_fatal_join_error_is_raised_by_the_poll_and_the_next_poll_rejoins"
    ],
    "rebalance: partitions of a subscribed topic change": [
        f"{_CLASSIC}::test_new_partitions_make_the_leader_join_again"
    ],
    "rebalance: a member leaves": [
        f"{_CLASSIC}::test_leave_request_states_the_reason_and_static_members_send_none"
    ],
    "generation and assignment survive a coordinator that moves": [
        f"{_CLASSIC}::test_generation_and_assignment_survive_a_coordinator_that_moves",
        f"{_BROKER}::test_the_coordinator_may_move",
    ],
    "only a join in progress is repeated": [f"{_CLASSIC}::test_a_join_that_is_lost_is_repeated"],
    "an old generation is ILLEGAL_GENERATION": [
        f"{_CLASSIC}::test_removed_member_loses_its_partitions"
    ],
    "heartbeat.interval.ms smaller than the session, better a third": [
        f"{_HERE}::test_heartbeat_interval_is_smaller_than_the_session_and_better_a_third",
        "unit/client/test_setting_parsing.py::test_rare_heartbeats_are_warned_of",
    ],
    "max.poll.interval.ms [300 000]": [
        f"{_HERE}::test_defaults_of_the_group_protocol",
        f"{_BROKER}::test_consumer_that_does_not_poll_in_time_loses_its_partitions",
    ],
    "committed value = last processed + 1": [
        f"{_BROKER}::test_a_member_reads_all_and_the_next_goes_on_where_it_committed"
    ],
    "group.instance.id (KIP-345)": [
        "conformance/test_own_consumer.py"
        "::test_a_static_member_comes_back_to_its_partitions_without_a_rebalance",
        "conformance/test_own_consumer.py::test_second_member_with_the_same_instance_id_conflicts",
        "unit/client/consumer/test_consumer_member.py::test_member_epoch_of_a_leave_request",
    ],
    # the producer
    "accumulator": [
        f"{_PRODUCER}::test_accumulator_a_deque_of_batches_for_each_partition",
        f"{_PRODUCER}::test_accumulator_defaults",
        "unit/client/test_producer.py::test_a_full_buffer_makes_room_or_says_why_not",
        f"{_PRODUCER}::test_accumulator_a_batch_is_batch_size_unless_one_record_is_larger",
        f"{_PRODUCER}::test_accumulator_what_a_request_holds_is_never_changed",
    ],
    "sender": [
        f"{_PRODUCER}::test_sender_batches_by_node_and_requests_in_flight",
        f"{_PRODUCER}"
        "::test_sender_metadata_is_asked_for_when_a_leader_has_moved_or_a_topic_is_unknown",
    ],
    "the least loaded node gets metadata requests": [
        f"{_HERE}::test_the_least_loaded_node_is_asked_for_metadata"
    ],
    "bootstrap servers are a way in, not the list of brokers": [
        f"{_HERE}::test_bootstrap_servers_are_a_way_in"
    ],
    "murmur2, round robin or sticky": [
        f"{_PRODUCER}::test_key_murmur2_for_keys_sticky_or_round_robin_without",
        "unit/client/test_partitioner.py::test_partitions_by_key_agree_with_kafka_python",
    ],
    "acks 0, 1, all": [
        f"{_PRODUCER}::test_acks",
        "unit/client/test_producer.py::test_a_batch_is_sent_again_as_often_as_was_said",
    ],
    "idempotence": [
        "unit/client/test_settings.py::test_a_contradiction_is_an_error_if_idempotence_was_asked_for",
        f"{_PRODUCER}::test_idempotence_a_repeat_is_the_same_and_equal_records_are_two",
    ],
    "transactions": [f"{_PRODUCER}::test_transactions_need_an_id_and_idempotence"],
    "a second producer with the same id fences the first": [
        f"{_OWN}::test_a_second_producer_fences_the_first",
        "unit/client/test_transactional.py::test_a_fenced_producer_is_unusable",
    ],
    "transaction.timeout.ms": [f"{_OWN}::test_a_transaction_that_timed_out_cannot_be_committed"],
    "transactions, version 1: partitions are added before the first write": [
        "unit/client/test_transactional.py"
        "::test_version_1_adds_before_it_writes_and_keeps_its_epoch"
    ],
    # the consumer
    "commits automatic every auto.commit.interval.ms [5 000] inside poll": [
        f"{_BROKER}::test_auto_commit_commits_records_of_earlier_polls",
        f"{_HERE}::test_defaults_of_the_consumer",
    ],
    "an older async commit must not overwrite a newer one": [
        f"{_BROKER}::test_commits_end_in_the_order_in_which_they_were_asked_for"
    ],
    "a last sync commit on close": [
        f"{_BROKER}::test_a_member_reads_all_and_the_next_goes_on_where_it_committed"
    ],
    "a last sync commit before partitions are revoked": [
        f"{_BROKER}::test_members_share_and_who_stays_takes_over"
    ],
    "on_partitions_revoked before rejoin, on_partitions_assigned after": [
        f"{_CLASSIC}::test_an_eager_member_gives_up_all_before_it_joins"
    ],
    "heartbeats stop while rejoining": [
        f"{_CLASSIC}::test_heartbeats_go_on_while_the_application_gives_up_and_stop_while_rejoining"
    ],
    "read_uncommitted is the default": [
        f"{_FETCHED}::test_reading_uncommitted_is_the_default_and_shows_no_control_records_either",
        f"{_HERE}::test_defaults_of_the_consumer",
    ],
    "aborted records are never handed out, control records neither": [
        f"{_FETCHED}::test_aborted_records_are_left_out_up_to_their_marker",
        f"{_FETCHED}::test_control_batches_move_the_position_only",
        f"{_OWN}::test_an_open_transaction_holds_committed_readers_back",
    ],
    "one consumer per thread": [f"{_HERE}::test_one_consumer_per_thread"],
    "several threads on one partition with explicit assignment": [
        f"{_HERE}::test_several_threads_on_one_partition_by_explicit_assignment"
    ],
    "sliding window": [
        f"{_WINDOW}::test_commits_are_safe_and_nothing_is_lost",
        f"{_ENGINE}::test_cells_that_sleep_10_ms_a_record_finish_cells_times_as_many",
    ],
    "a front cell that hangs: retry topic, dead-letter topic": [
        f"{_ENGINE}::test_retry_topics_wait_by_pausing_and_the_function_sees_the_first_place",
        f"{_ENGINE}::test_a_poison_record_ends_in_the_dead_letters_while_the_partition_moves_on",
        f"{_ENGINE}::test_a_call_that_never_returns_is_given_up_and_the_window_moves_on",
    ],
    "process then commit = at least once": [f"{_HERE}::test_process_then_commit_is_at_least_once"],
    "commit then process = at most once": [f"{_HERE}::test_commit_then_process_is_at_most_once"],
    "offsets in the transaction = exactly once": [
        f"{_OWN}::test_consume_transform_produce_is_exactly_once"
    ],
}


@pytest.mark.parametrize("row", ROWS)
def test_every_has_its_tests(row: str) -> None:
    for test in ROWS[row]:
        path, _, name = test.partition("::")
        found = ast.parse((TESTS / path).read_text()).body
        assert name in {one.name for one in found if isinstance(one, ast.FunctionDef)}, test


# -- groups, as clients see them ---------------------------------------------------------------


def busy_cluster() -> FakeCluster:
    """Two brokers; whoever is asked for a producer id hangs."""
    cluster = FakeCluster(2, {"t": {0: 1, 1: 2}})
    cluster.handlers[ApiKey.INIT_PRODUCER_ID] = lambda *_: NOTHING
    cluster.handlers[ApiKey.FIND_COORDINATOR] = lambda *_: FindCoordinatorResponse(
        coordinators=[Coordinator(key="g", node_id=1, host="fake", port=9001)]
    )
    return cluster


def leave_one_busy(core: Core, busy: int) -> None:
    """Connect to both brokers; one has a question that it never answers."""
    core.close()  # the connection to the bootstrap server, which is another to broker 1
    for node_id in (1, 2):
        run_blocking(core.api_versions(node_id))
    run_blocking(core.submit(busy, InitProducerIdRequest(), InitProducerIdResponse))


@pytest.mark.parametrize("busy", [1, 2])
def test_the_least_loaded_node_is_asked_for_the_coordinator(busy: int) -> None:
    """ "FindCoordinator (asked of the least loaded node: fewest requests in flight)"."""
    cluster = busy_cluster()
    core = core_of(cluster)
    run_blocking(core.refresh(["t"]))
    leave_one_busy(core, busy)
    assert run_blocking(Coordinators(core).find(["g"])) == {"g": 1}
    asked = [node for node, one in cluster.seen if isinstance(one, FindCoordinatorRequest)]
    assert asked == [3 - busy]


@pytest.mark.parametrize("busy", [1, 2])
def test_the_least_loaded_node_is_asked_for_metadata(busy: int) -> None:
    """ "the node with the fewest unanswered requests … gets metadata requests"."""
    cluster = busy_cluster()
    core = core_of(cluster)
    run_blocking(core.refresh(["t"]))
    leave_one_busy(core, busy)
    cluster.seen.clear()
    run_blocking(core.refresh(["t"]))
    assert [node for node, one in cluster.seen if isinstance(one, MetadataRequest)] == [3 - busy]


def test_bootstrap_servers_are_a_way_in() -> None:
    """ "Bootstrap servers are a way in, not the list of brokers": broker 2 is in metadata only."""
    cluster = FakeCluster(2, {"t": {0: 2}})
    logs = Logs(cluster)
    core = core_of(cluster)
    assert core.settings.bootstrap == (("fake", 9001),)
    producer = ProducerCore(core, ProducerSettings())
    run_blocking(producer.prepare("t"))
    producer.append("t", b"v", partition=0)
    run_blocking(producer.flush())
    assert [node for node, one in cluster.seen if isinstance(one, ProduceRequest)] == [2]
    assert logs.values == {("t", 0): [b"v"]}


def test_defaults_of_the_group_protocol() -> None:
    """ "heartbeat.interval.ms [3 000]", "max.poll.interval.ms [300 000]"."""
    settings = ConsumerSettings(group_id="g")
    assert settings.heartbeat_interval_ms == 3_000
    assert settings.max_poll_interval_ms == 300_000
    assert 6_000 <= settings.session_timeout_ms <= 1_800_000, "what brokers take by default"


def test_heartbeat_interval_is_smaller_than_the_session_and_better_a_third(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """ "heartbeat.interval.ms must be smaller, and should be at most a third (warn)"."""
    with pytest.raises(InvalidSetting, match="heartbeat_interval_ms between 0 and session"):
        ConsumerSettings(session_timeout_ms=6_000, heartbeat_interval_ms=6_000)
    ConsumerSettings(session_timeout_ms=6_000, heartbeat_interval_ms=2_000)
    assert not caplog.records
    ConsumerSettings(session_timeout_ms=6_000, heartbeat_interval_ms=2_001)
    assert "more than a third" in caplog.text


# -- the consumer ------------------------------------------------------------------------------


def test_defaults_of_the_consumer() -> None:
    """ "auto.commit.interval.ms [5 000]"; "read_uncommitted (default)"."""
    settings = ConsumerSettings()
    assert settings.enable_auto_commit
    assert settings.auto_commit_interval_ms == 5_000
    assert not settings.read_committed


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker(settings={"group.initial.rebalance.delay.ms": "0"}) as broker:
        yield broker.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    """Two partitions, ten records in each."""
    name = f"t-{uuid4()}"
    with BlockingClient(bootstrap) as client:
        client.create_topics([NewTopic(name, 2)])
        with client.producer() as producer:
            for number in range(20):
                producer.send(name, b"%02d" % number, partition=number % 2)
    return name


def read(consumer: Consumer[bytes, bytes], count: int) -> list[bytes]:
    """Poll until so many values came; fewer if nothing comes any more."""
    found: list[bytes] = []
    while len(found) < count:
        records = consumer.poll_records(PATIENCE_MS, max_records=count - len(found))
        if not records:
            break
        found += (record.value or b"" for record in records)
    return found


def test_one_consumer_per_thread(bootstrap: str, topic: str) -> None:
    """ "Concurrency: (1) one consumer per thread": each thread has partitions of its own."""
    values: list[list[bytes]] = [[], []]
    both = threading.Barrier(2)

    def work(number: int) -> None:
        with Consumer(bootstrap, group_id=topic, auto_offset_reset="earliest") as consumer:
            consumer.subscribe([topic])
            while len(values[0]) + len(values[1]) < 20:
                values[number] += (one.value or b"" for one in consumer.poll_records(50))
            both.wait(PATIENCE_MS / 1000)  # who closes first would hand its partitions over

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_MS / 1000)
    assert sorted(values[0] + values[1]) == [b"%02d" % number for number in range(20)]


def test_several_threads_on_one_partition_by_explicit_assignment(
    bootstrap: str, topic: str
) -> None:
    """ "(2) several threads on one partition with explicit assignment": each has a part of it."""
    key, values = TopicPartition(topic, 0), {}

    def work(start: int) -> None:
        with Consumer(bootstrap) as consumer:
            consumer.assign({key: start})
            values[start] = read(consumer, 5)

    threads = [threading.Thread(target=work, args=(start,)) for start in (0, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_MS / 1000)
    expected = [b"%02d" % number for number in range(0, 20, 2)]
    assert values == {0: expected[:5], 5: expected[5:]}


def manual(bootstrap: str, topic: str) -> Consumer[bytes, bytes]:
    """A consumer of partition 0 that commits by hand."""
    consumer: Consumer[bytes, bytes] = Consumer(
        bootstrap, group_id=topic, auto_offset_reset="earliest", enable_auto_commit=False
    )
    consumer.assign([TopicPartition(topic, 0)])
    return consumer


def test_process_then_commit_is_at_least_once(bootstrap: str, topic: str) -> None:
    """ "Delivery: process then commit = at least once": what was processed last comes again."""
    with manual(bootstrap, topic) as consumer:
        processed = read(consumer, 4)
        consumer.commit()
        processed += read(consumer, 3)  # and ends before it commits these
    with manual(bootstrap, topic) as consumer:
        again = read(consumer, 6)
    assert processed[4:] == again[:3]
    assert processed[:4] + again == [b"%02d" % number for number in range(0, 20, 2)]


def test_commit_then_process_is_at_most_once(bootstrap: str, topic: str) -> None:
    """ "commit then process = at most once": what was not processed then never is."""
    processed = []
    with manual(bootstrap, topic) as consumer:
        for _ in range(4):
            (value,) = read(consumer, 1)
            consumer.commit()
            processed.append(value)
        processed.pop()  # it ends after the commit, before it has processed that one
    with manual(bootstrap, topic) as consumer:
        processed += read(consumer, 6)
    expected = [b"%02d" % number for number in range(0, 20, 2)]
    assert processed == expected[:3] + expected[4:]
