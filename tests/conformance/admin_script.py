"""A conversation of an administrator with a broker, held with two brokers and compared.

Every request is sent in every version that can carry it. Steps build on one another: topics `a`
and `b` are created first, and each version that changes something has a topic of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from raylog.wire.api import ApiKey
from raylog.wire.messages import alter_configs, incremental_alter_configs
from raylog.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from raylog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from raylog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from raylog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from raylog.wire.messages.describe_cluster import DescribeClusterRequest
from raylog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from raylog.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from raylog.wire.messages.describe_producers import DescribeProducersRequest
from raylog.wire.messages.describe_producers import TopicRequest as ProducersOf
from raylog.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from raylog.wire.messages.describe_topic_partitions import TopicRequest as PartitionsOf
from raylog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from raylog.wire.messages.init_producer_id import InitProducerIdRequest
from raylog.wire.messages.list_config_resources import ListConfigResourcesRequest
from raylog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from raylog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from raylog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from raylog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from raylog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from raylog.wire.records import Record, encode_batch
from tests.conformance.replica_script import brokers, elections, reassignments

TIMEOUT_MS = 10_000
TOPIC, BROKER, GROUP = 2, 4, 32
Ids = dict[str, bytes]
"""Topic ids by name, as Metadata told them."""
Request = Callable[[Ids], Any]


@dataclass(frozen=True, slots=True)
class Step:
    """A request and the versions it is sent in.

    It is repeated until `until` holds for the response: changes take a moment to reach brokers.
    """

    label: str
    request: Request
    versions: Iterable[int]
    until: Callable[[Any], bool] = lambda _answer: True


def versions(api_key: ApiKey, first: int = 0) -> range:
    """The versions of an API, from `first` on."""
    return range(max(first, api_key.versions.start), api_key.versions.stop)


def script() -> Iterator[Step]:
    """The whole conversation."""
    yield from _creating()
    yield from _metadata()
    yield from _writing()
    yield from _offsets()
    yield from _configs()
    yield from _growing()
    yield from _pages()
    yield from _cluster()
    for label, request, every in (*elections(), *reassignments(), *brokers()):
        yield Step(label, lambda _ids, request=request: request, every)  # type: ignore[misc]  # bound now
    yield from _deleting()


# ---- topics ----------------------------------------------------------------------------------


def _new(name: str, partitions: int = 1, replicas: int = 1, **more: Any) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, **more)


def _creating() -> Iterator[Step]:
    def create(*topics: CreatableTopic, **more: Any) -> Request:
        return lambda _ids: CreateTopicsRequest(topics=list(topics), timeout_ms=TIMEOUT_MS, **more)

    def config(name: str, value: str | None) -> list[CreatableTopicConfig]:
        return [CreatableTopicConfig(name=name, value=value)]

    def placed(*replicas: list[int], **more: int) -> CreatableTopic:
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in enumerate(replicas)
        ]
        fields = {"partitions": -1, "replicas": -1, **more}
        return _new("placed", **fields, assignments=assignments)

    every = versions(ApiKey.CREATE_TOPICS)
    kept = _new("a", 2, configs=config("retention.ms", "-1"))  # its records are from 1970
    brief = _new("b", 4, configs=config("retention.ms", "5"))
    yield Step("create a, b", create(kept, brief), [7])
    compacted = _new("compacted", configs=config("cleanup.policy", "compact"))
    yield Step("create compacted", create(compacted), [7])
    for version in every:
        yield Step("create one of its version", create(_new(f"version-{version}")), [version])
    refused = [
        _new("a"),
        _new("bad name"),
        _new(""),
        _new("."),
        _new("n" * 250),
        _new("none", 0),
        _new("many", 1, 5),
        _new("zero", 1, 0),
        _new("key", configs=config("nope", "1")),
        _new("value", configs=config("retention.ms", "x")),
        _new("null", configs=config("retention.ms", None)),
        _new("dup"),
        _new("dup"),
    ]
    yield Step("create what cannot be", create(*refused), every)
    yield Step("create colliding", create(_new("x.y")), [7])
    yield Step("create what collides", create(_new("x_y")), every)
    yield Step(
        "validate", create(_new("v", -1, -1), validate_only=True), versions(ApiKey.CREATE_TOPICS, 4)
    )
    yield Step("place on an unknown broker", create(placed([9])), every)
    yield Step("place twice on one", create(placed([1, 1])), every)
    yield Step("place and count", create(placed([1], partitions=1)), every)
    yield Step("place nowhere", create(placed([])), every)
    yield Step("place", create(placed([1], [1])), [7])
    yield Step("create the metadata topic", create(_new("__cluster_metadata")), every)


def _growing() -> Iterator[Step]:
    def grow(*topics: tuple[str, int, list[list[int]] | None], **more: Any) -> Request:
        asked = [
            CreatePartitionsTopic(
                name=name,
                count=count,
                assignments=None
                if placed is None
                else [CreatePartitionsAssignment(broker_ids=ids) for ids in placed],
            )
            for name, count, placed in topics
        ]
        return lambda _ids: CreatePartitionsRequest(topics=asked, timeout_ms=TIMEOUT_MS, **more)

    every = versions(ApiKey.CREATE_PARTITIONS)
    refused = [("a", 2, None), ("b", 1, None), ("none", 3, None), ("placed", 0, None)]
    yield Step("grow what cannot be", grow(*refused), every)
    yield Step(
        "grow by nobody", grow(("a", 3, [[9]]), ("b", 6, [[1]]), ("placed", 3, [[1, 1]])), every
    )
    yield Step("grow twice at once", grow(("a", 3, None), ("a", 4, None)), every)
    yield Step("validate growing", grow(("a", 3, None), validate_only=True), every)
    for version in every:
        topic = ("placed", 3 + version, None if version % 2 else [[1]])
        yield Step("grow", grow(topic), [version])
    yield _until_partitions("placed", 2 + len(every))


def _deleting() -> Iterator[Step]:
    def by_name(*names: str) -> Request:
        return lambda _ids: DeleteTopicsRequest(topic_names=list(names), timeout_ms=TIMEOUT_MS)

    def by_state(*states: Callable[[Ids], DeleteTopicState]) -> Request:
        return lambda ids: DeleteTopicsRequest(
            topics=[state(ids) for state in states], timeout_ms=TIMEOUT_MS
        )

    for version in versions(ApiKey.DELETE_TOPICS)[:-1]:
        names = ("none", f"version-{version}") if version > 1 else ("none",)
        yield Step("delete by name", by_name(*names), [version])
        yield Step("delete twice at once", by_name("b", "b"), [version])
    yield Step("delete nothing", by_name(), [4])
    odd = (
        lambda _ids: DeleteTopicState(name="none"),
        lambda ids: DeleteTopicState(name="a", topic_id=ids["a"]),
        lambda _ids: DeleteTopicState(),
        lambda _ids: DeleteTopicState(topic_id=b"u" * 16),
        lambda _ids: DeleteTopicState(name="b"),
        lambda ids: DeleteTopicState(topic_id=ids["b"]),
    )
    yield Step("delete what cannot be", by_state(*odd), [6])
    yield Step(
        "delete by id", by_state(lambda ids: DeleteTopicState(topic_id=ids["version-7"])), [6]
    )
    yield Step("delete by name", by_state(lambda _ids: DeleteTopicState(name="version-6")), [6])


def _until_partitions(name: str, count: int) -> Step:
    """Wait until every change so far is seen."""
    asked = MetadataRequest(
        topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
    )
    return Step(
        f"{name} has {count} partitions",
        lambda _ids: asked,
        [12],
        lambda answer: len(answer.topics[0].partitions) == count,
    )


# ---- metadata --------------------------------------------------------------------------------


def _metadata() -> Iterator[Step]:
    def names(*asked: str, **more: Any) -> Request:
        topics = [MetadataRequestTopic(name=name) for name in asked]
        return lambda _ids: MetadataRequest(topics=topics, allow_auto_topic_creation=False, **more)

    def of_ids(*asked: Callable[[Ids], MetadataRequestTopic]) -> Request:
        return lambda ids: MetadataRequest(
            topics=[one(ids) for one in asked], allow_auto_topic_creation=False
        )

    # before version 4 a request always allows creation: only what exists or never can is asked for
    every, quiet = versions(ApiKey.METADATA), versions(ApiKey.METADATA, 4)
    yield _until_partitions("placed", 2)
    yield Step(
        "metadata of a",
        lambda _ids: MetadataRequest(topics=[MetadataRequestTopic(name="a")]),
        every,
    )
    yield Step(
        "metadata of some",
        names("b", "a", "a", "none", "bad name", "", "__consumer_offsets"),
        quiet,
    )
    yield Step("metadata of none", lambda _ids: MetadataRequest(topics=[]), every)
    yield Step(
        "metadata of all", lambda _ids: MetadataRequest(topics=None), versions(ApiKey.METADATA, 1)
    )
    allowed = {
        "include_cluster_authorized_operations": True,
        "include_topic_authorized_operations": True,
    }
    yield Step("metadata with what is allowed", names("a", "none", **allowed), range(8, 11))
    known = lambda ids: MetadataRequestTopic(name=None, topic_id=ids["a"])  # noqa: E731 - one of a row
    unknown = lambda _ids: MetadataRequestTopic(name=None, topic_id=b"u" * 16)  # noqa: E731
    both = lambda ids: MetadataRequestTopic(name="a", topic_id=ids["a"])  # noqa: E731
    other = lambda _ids: MetadataRequestTopic(name="b")  # noqa: E731
    yield Step("metadata by id", of_ids(known, unknown), range(12, 14))
    yield Step("metadata by id and name", of_ids(both, other), range(12, 14))
    yield Step("metadata by id too early", of_ids(both), range(10, 12))


def _pages() -> Iterator[Step]:
    def page(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Request:
        return lambda _ids: DescribeTopicPartitionsRequest(
            topics=[PartitionsOf(name=name) for name in names],
            response_partition_limit=limit,
            cursor=None
            if cursor is None
            else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
        )

    requests = [
        page("a"),
        page("b", "a", limit=3),
        page("b", "a", limit=2),
        page(limit=3, cursor=("b", 1)),
        page("a", "b", limit=3, cursor=("b", 4)),
        page("a", "b", limit=3, cursor=("a", 5)),
        page("b", limit=3, cursor=("a", 1)),
        page("a", cursor=("zz", 0)),
        page("a", cursor=("a", -1)),
        page("a", limit=0),
        page("a", limit=-1),
        page(limit=3, cursor=("aa", 1)),
        page("a", "a"),
        page("a", "none", "bad name", limit=2),
        page("none", "bad name", "__consumer_offsets"),
        page(),
    ]
    for number, request in enumerate(requests):
        yield Step(f"page {number}", request, [0])


# ---- records ---------------------------------------------------------------------------------


def _batch(first_timestamp: int, count: int, key: bytes | None = b"k") -> bytes:
    return encode_batch([Record(n, first_timestamp + n, key, b"v%d" % n, []) for n in range(count)])


def _writing() -> Iterator[Step]:
    def write(topic: str, partition: int, batch: bytes, acks: int = -1) -> Request:
        data = [PartitionProduceData(index=partition, records=batch)]
        return lambda ids: ProduceRequest(
            acks=acks,
            timeout_ms=TIMEOUT_MS,
            topic_data=[
                TopicProduceData(
                    name=topic, topic_id=ids.get(topic, b"u" * 16), partition_data=data
                )
            ],
        )

    yield Step("write", write("a", 0, _batch(1000, 5)), [9])
    yield Step("write more", write("a", 0, _batch(2000, 5)), [9])
    yield Step("write elsewhere", write("a", 1, _batch(5000, 3)), [9])
    every = versions(ApiKey.PRODUCE)
    yield Step("write in each version", write("placed", 0, _batch(3000, 2)), every)
    yield Step("write with acks 1", write("placed", 1, _batch(3000, 2), acks=1), every)
    sound = _batch(3000, 2)
    refused = {
        "no bytes": write("placed", 0, b""),
        "two batches": write("placed", 0, sound + sound),
        "a wrong checksum": write("placed", 0, sound[:-1] + bytes([sound[-1] ^ 1])),
        "a cut batch": write("placed", 0, sound[:-1]),
        "an old format": write("placed", 0, sound[:16] + b"\x01" + sound[17:]),
        "no key to a compacted topic": write("compacted", 0, _batch(3000, 2, key=None)),
        "too much": write("placed", 0, encode_batch([Record(0, 1, None, bytes(1 << 20), [])])),
        "tomorrow": write("placed", 0, _batch(1 << 50, 1)),
        "acks 2": write("placed", 0, sound, acks=2),
        "to no partition": write("placed", 9, sound),
        "to no topic": write("none", 0, sound),
    }
    for label, request in refused.items():
        yield Step(f"write {label}", request, every)
    yield from _producers()
    yield from _reading()


def _producers() -> Iterator[Step]:
    ok = lambda answer: answer.error_code != 14  # noqa: E731 - Kafka fetches its first block late
    for version in versions(ApiKey.INIT_PRODUCER_ID):
        plain = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        yield Step("producer id", lambda _ids, plain=plain: plain, [version], ok)  # type: ignore[misc]  # bound now
        empty = InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000)
        yield Step("empty transactional id", lambda _ids, empty=empty: empty, [version])  # type: ignore[misc]  # bound now
    half = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000, producer_id=5)
    yield Step("half of an old producer id", lambda _ids: half, range(3, 6))
    asked = [
        ProducersOf(name="a", partition_indexes=[0, 9]),
        ProducersOf(name="none", partition_indexes=[0]),
    ]
    yield Step("producers", lambda _ids: DescribeProducersRequest(topics=asked), [0])


def _reading() -> Iterator[Step]:
    def read(
        topic: str, partition: int, offset: int, *, level: int = 0, now: int = -1, last: int = -1
    ) -> Request:
        asked = FetchPartition(
            partition=partition,
            fetch_offset=offset,
            partition_max_bytes=1 << 20,
            current_leader_epoch=now,
            last_fetched_epoch=last,
        )
        return lambda ids: FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            isolation_level=level,
            topics=[
                FetchTopic(topic=topic, topic_id=ids.get(topic, b"u" * 16), partitions=[asked])
            ],
        )

    every, with_epochs = versions(ApiKey.FETCH), versions(ApiKey.FETCH, 9)
    yield Step("read all", read("a", 0, 0), every)
    yield Step("read from the middle of a batch", read("a", 0, 7), every)
    yield Step("read what is committed", read("a", 0, 0, level=1), every)
    yield Step("read at the end", read("a", 0, 10), every)
    yield Step("read past the end", read("a", 0, 11), every)
    yield Step("read before the start", read("a", 0, -1), every)
    yield Step("read of an empty log", read("b", 0, 0), every)
    yield Step("read of no partition", read("a", 9, 0), every)
    yield Step("read of no topic", read("none", 0, 0), every)
    yield Step("read in the epoch", read("a", 0, 0, now=0), with_epochs)
    yield Step("read in a later epoch", read("a", 0, 0, now=3), with_epochs)
    for epoch in (0, 1):
        after = read("a", 0, 5, last=epoch)
        yield Step(f"read after epoch {epoch}", after, versions(ApiKey.FETCH, 12))


def _offsets() -> Iterator[Step]:
    def offsets(
        *timestamps: int, topic: str = "a", partition: int = 0, epoch: int = -1, level: int = 0
    ) -> Request:
        asked = [
            ListOffsetsPartition(
                partition_index=partition, timestamp=time, current_leader_epoch=epoch
            )
            for time in timestamps
        ]
        return lambda _ids: ListOffsetsRequest(
            replica_id=-1,
            isolation_level=level,
            topics=[ListOffsetsTopic(name=topic, partitions=asked)],
        )

    every = versions(ApiKey.LIST_OFFSETS)
    for time in (*range(-7, 1), 1002, 1005, 2004, 2005, 1 << 50):
        yield Step(f"offset for {time}", offsets(time), every)
    for time in (-1, -2, -3, 1000):
        yield Step(f"offset for {time} of an empty log", offsets(time, topic="b"), [11])
    yield Step("offset of no topic", offsets(-1, topic="none"), every)
    yield Step("offset of no partition", offsets(-1, partition=9), every)
    yield Step("offset twice", offsets(-1, -2), every)
    yield Step("offset in the epoch", offsets(-1, epoch=0), versions(ApiKey.LIST_OFFSETS, 4))
    yield Step("offset in a later epoch", offsets(-1, epoch=3), versions(ApiKey.LIST_OFFSETS, 4))
    yield Step("committed offset", offsets(-1, level=1), versions(ApiKey.LIST_OFFSETS, 2))

    def epochs(topic: str, partition: int, epoch: int, current: int) -> Request:
        asked = OffsetForLeaderPartition(
            partition=partition, leader_epoch=epoch, current_leader_epoch=current
        )
        return lambda _ids: OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])]
        )

    all_epochs = versions(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    for epoch in (-1, 0, 1, 5):
        for current in (-1, 0, 3):
            yield Step(
                f"end of epoch {epoch} in {current}", epochs("a", 0, epoch, current), all_epochs
            )
    yield Step("end of an epoch of no topic", epochs("none", 0, 0, -1), all_epochs)
    yield Step("end of an epoch of no partition", epochs("a", 9, 0, -1), all_epochs)

    def delete(topic: str, partition: int, offset: int) -> Request:
        asked = [DeleteRecordsPartition(partition_index=partition, offset=offset)]
        return lambda _ids: DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=asked)], timeout_ms=TIMEOUT_MS
        )

    every = versions(ApiKey.DELETE_RECORDS)
    for offset in (2, 1, 100, -2):
        yield Step(f"delete records to {offset}", delete("a", 0, offset), every)
    yield Step("delete all records", delete("a", 1, -1), every)
    yield Step("delete records of a compacted topic", delete("compacted", 0, 0), every)
    yield Step("delete records of no topic", delete("none", 0, 0), every)
    yield Step("delete records of no partition", delete("a", 9, 0), every)
    for time in (-1, -2, -3, 1000):
        yield Step(f"offset for {time} of a shortened log", offsets(time), [11])


# ---- settings --------------------------------------------------------------------------------


def _configs() -> Iterator[Step]:
    def describe(
        kind: int,
        name: str,
        *keys: str,
        when: str = "at first",
        until: Callable[[Any], bool] = lambda _answer: True,
    ) -> Iterator[Step]:
        asked = DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
        )
        label = f"settings of {kind} {name!r} {when}"
        plain = DescribeConfigsRequest(resources=[asked])
        full = DescribeConfigsRequest(resources=[asked], include_synonyms=True)
        yield Step(label, lambda _ids: plain, versions(ApiKey.DESCRIBE_CONFIGS), until)
        yield Step(f"{label} with synonyms", lambda _ids: full, versions(ApiKey.DESCRIBE_CONFIGS))

    for name in ("none", "bad name", ""):
        yield from describe(TOPIC, name)
    for name in ("2", "x"):
        yield from describe(BROKER, name)
    yield from describe(GROUP, "")
    yield from describe(GROUP, "g", "consumer.session.timeout.ms")
    yield from describe(TOPIC, "b", "retention.ms", "segment.bytes", "nope")
    yield from describe(BROKER, "1", "num.partitions", "log.retention.hours", "log.segment.bytes")

    def has(value: str) -> Callable[[Any], bool]:
        return lambda answer: any(config.value == value for config in answer.results[0].configs)

    yield from _altering(describe, has)


def _altering(
    describe: Callable[..., Iterator[Step]], has: Callable[[str], Callable[[Any], bool]]
) -> Iterator[Step]:
    def change(kind: int, name: str, *ops: tuple[str, int, str | None], **more: Any) -> Request:
        configs = [
            incremental_alter_configs.AlterableConfig(name=key, config_operation=op, value=value)
            for key, op, value in ops
        ]
        resource = incremental_alter_configs.AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=configs
        )
        return lambda _ids: incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[resource], **more
        )

    every = versions(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    refused = {
        "no topic": change(TOPIC, "none", ("retention.ms", 0, "1")),
        "no key": change(TOPIC, "a", ("nope", 0, "1")),
        "no value": change(TOPIC, "a", ("retention.ms", 0, None)),
        "append to a number": change(TOPIC, "a", ("retention.ms", 2, "5")),
        "one key twice": change(TOPIC, "a", ("retention.ms", 0, "5"), ("retention.ms", 0, "6")),
        "fixed": change(BROKER, "1", ("broker.id", 0, "7")),
        "group without a name": change(GROUP, "", ("x", 0, "1")),
        "unknown kind": change(1, "x", ("x", 0, "1")),
    }
    for label, request in refused.items():
        yield Step(f"change: {label}", request, every)
    yield Step(
        "change: try", change(TOPIC, "a", ("retention.ms", 0, "9"), validate_only=True), every
    )
    yield Step("change", change(TOPIC, "a", ("retention.ms", 0, "1000")), every)
    yield Step("change a list", change(TOPIC, "b", ("cleanup.policy", 2, "compact")), every)
    yield Step("change one broker", change(BROKER, "1", ("log.retention.ms", 0, "70000")), every)
    yield Step("change all brokers", change(BROKER, "", ("log.segment.bytes", 0, "7000000")), every)
    yield from describe(
        BROKER, "1", "log.segment.bytes", "num.partitions", when="changed", until=has("7000000")
    )
    yield from describe(
        TOPIC, "a", "retention.ms", "segment.bytes", when="changed", until=has("1000")
    )
    yield from describe(TOPIC, "b", "cleanup.policy", when="changed", until=has("delete,compact"))
    yield Step("take from a list", change(TOPIC, "b", ("cleanup.policy", 3, "compact")), every)
    yield Step("undo one", change(BROKER, "1", ("log.retention.ms", 1, None)), every)
    yield Step("undo all", change(BROKER, "", ("log.segment.bytes", 1, None)), every)
    yield from _putting(describe, has)


def _putting(
    describe: Callable[..., Iterator[Step]], has: Callable[[str], Callable[[Any], bool]]
) -> Iterator[Step]:
    def put(name: str, *pairs: tuple[str, str | None], **more: Any) -> Request:
        configs = [alter_configs.AlterableConfig(name=key, value=value) for key, value in pairs]
        resource = alter_configs.AlterConfigsResource(
            resource_type=TOPIC, resource_name=name, configs=configs
        )
        return lambda _ids: alter_configs.AlterConfigsRequest(resources=[resource], **more)

    every = versions(ApiKey.ALTER_CONFIGS)
    yield Step("put: no topic", put("none"), every)
    yield Step("put: no key", put("a", ("nope", "1")), every)
    yield Step("put: no value", put("a", ("retention.ms", None)), every)
    yield Step("put: try", put("a", ("segment.bytes", "3000000"), validate_only=True), every)
    yield Step("put", put("a", ("segment.bytes", "2000000")), every)
    yield from describe(
        TOPIC, "a", "retention.ms", "segment.bytes", when="replaced", until=has("2000000")
    )


# ---- cluster ---------------------------------------------------------------------------------


def _cluster() -> Iterator[Step]:
    every = versions(ApiKey.DESCRIBE_CLUSTER)
    plain = DescribeClusterRequest()
    yield Step("cluster", lambda _ids: plain, every)
    allowed = DescribeClusterRequest(include_cluster_authorized_operations=True)
    yield Step("cluster with what is allowed", lambda _ids: allowed, every)
    fenced = DescribeClusterRequest(include_fenced_brokers=True)
    yield Step("cluster with fenced brokers", lambda _ids: fenced, [2])
    for kind in (2, 3):
        asked = DescribeClusterRequest(endpoint_type=kind)
        yield Step(f"cluster of endpoints {kind}", lambda _ids, asked=asked: asked, [1, 2])  # type: ignore[misc]  # bound now
    for kinds in ([TOPIC], [BROKER], [GROUP], [5], [TOPIC, 77]):
        listed = ListConfigResourcesRequest(resource_types=kinds)
        yield Step(f"resources {kinds}", lambda _ids, listed=listed: listed, [1])  # type: ignore[misc]  # bound now
    topics = [
        DescribableLogDirTopic(topic="a", partitions=[0, 9]),
        DescribableLogDirTopic(topic="none", partitions=[0]),
    ]
    for wanted in (topics, [], None):
        dirs = DescribeLogDirsRequest(topics=wanted)
        label = "log directories of all" if wanted is None else f"of {len(wanted)} topics"
        yield Step(label, lambda _ids, dirs=dirs: dirs, versions(ApiKey.DESCRIBE_LOG_DIRS))  # type: ignore[misc]  # bound now
    for name, level in (("nope", 1), ("metadata.version", 99), ("metadata.version", -1)):
        feature = FeatureUpdateKey(feature=name, max_version_level=level)
        update = UpdateFeaturesRequest(timeout_ms=TIMEOUT_MS, feature_updates=[feature])
        yield Step(f"feature {name} {level}", lambda _ids, update=update: update, range(3))  # type: ignore[misc]  # bound now
    nothing = UpdateFeaturesRequest(timeout_ms=TIMEOUT_MS)
    yield Step("no feature", lambda _ids: nothing, range(3))
