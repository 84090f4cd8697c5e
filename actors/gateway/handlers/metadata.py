"""Metadata 0-13: brokers, topics, and the leaders of their partitions.

v1 adds racks and the controller (any live broker, since each forwards requests), v2 the cluster id
(KIP-78), v4 can forbid the creation of topics, v5 adds offline replicas (KIP-112), v6
LISTENER_NOT_FOUND (KIP-219), v7 leader epochs (KIP-320), v8 authorized operations (KIP-430), v10
topic ids and v12 topics by id (KIP-516).

Brokers are listed with the endpoint of the client's listener; those without it are left out. A
missing topic that may be created gets UNKNOWN_TOPIC_OR_PARTITION at once, as in Kafka, and the
client retries. While a topic is being created, its creation is not requested again. Left out:
sending clients back to their bootstrap servers (v13, KIP-1102), which is never needed here.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from functools import partial

from raylog.actors.common_messages import TopicId
from raylog.actors.controller.messages import TOPICS_PER_REQUEST_MAX
from raylog.actors.controller.rules.topics import check_name
from raylog.actors.gateway.answers import attempt
from raylog.actors.gateway.context import RequestContext
from raylog.actors.gateway.rules.cluster_facts import (
    CLUSTER_OPERATIONS,
    INTERNAL_TOPICS,
    TOPIC_OPERATIONS,
    controller_id,
    reachable,
    unfenced_brokers,
)
from raylog.actors.metadata.image import MetadataImage
from raylog.wire.errors import ErrorCode, InvalidRequest, ReplicaNotAvailable
from raylog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from raylog.wire.schema import INT32_MIN
from raylog.wire.uuids import ZERO_UUID

Building = Generator[int, None, MetadataResponseTopic]
"""Steps that build the response about a topic; each yields how many partitions it handled."""
LISTENER_NOT_FOUND_SINCE = 6
TOPICS_BY_ID_SINCE = 12
AUTO_CREATE_KEY = "auto.create.topics.enable"


def metadata(context: RequestContext, request: MetadataRequest) -> MetadataResponse | None:
    """Answer from this gateway's metadata image, and create missing topics."""
    missing = _to_create(context, request)
    if missing:
        context.gateway.missing_topics.create(missing)
    try:
        _check(request.topics or [], context.version)
    except InvalidRequest as refusal:
        return _failed(request, int(refusal.code))
    response = _described(context, request)
    context.in_turns(_topics(context, request, response.topics), partial(context.reply, response))
    return None


def _failed(request: MetadataRequest, code: int) -> MetadataResponse:
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(error_code=code, name=asked.name or "", topic_id=asked.topic_id)
            for asked in request.topics or ()
        ],
        error_code=code,
    )


# ---- creating topics -----------------------------------------------------------------------


def _to_create(context: RequestContext, request: MetadataRequest) -> list[str]:
    """Return the requested names that have no topic yet and may get one.

    Return none if there are more than one request may create, since Apache Kafka's controller
    refuses these together.
    """
    gateway = context.gateway
    if not request.topics or not request.allow_auto_topic_creation:
        return []
    if len(request.topics) > TOPICS_PER_REQUEST_MAX:
        return []
    known = gateway.cluster.image.topic_ids
    missing = {one.name for one in request.topics if one.name and one.topic_id == ZERO_UUID}
    names = [name for name in missing if name not in known]
    if not names or not gateway.settings.flag(AUTO_CREATE_KEY):
        return []
    return sorted(name for name in names if _name_error(name) is ErrorCode.NONE)


def _name_error(name: str) -> ErrorCode:
    def checked() -> ErrorCode:
        check_name(name)
        return ErrorCode.NONE

    return attempt(checked, lambda code, _message: ErrorCode(code))


# ---- describing ----------------------------------------------------------------------------


def _described(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    """Build the response without its topics."""
    cluster = context.gateway.cluster
    image = cluster.image
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=broker.broker_id, host=at.host, port=at.port, rack=broker.rack
            )
            for broker, at in reachable(unfenced_brokers(image), context.listener)
        ],
        cluster_id=context.gateway.cluster_id,
        controller_id=controller_id(image, cluster.broker_id),
        topics=[],
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else INT32_MIN,
    )


def _topics(
    context: RequestContext, request: MetadataRequest, answered: list[MetadataResponseTopic]
) -> Iterator[int]:
    """Collect the requested topics, in the format of the request's version."""
    for building in _found(context, request):
        topic = yield from building
        if request.include_topic_authorized_operations:
            topic = _with_operations(topic)
        if context.version < LISTENER_NOT_FOUND_SINCE:
            topic = _without_listener_errors(topic)
        if context.version == 0:
            topic = _without_offline(topic)
        answered.append(topic)
        yield 1


def _found(context: RequestContext, request: MetadataRequest) -> Iterator[Building]:
    """Yield the requested topics once, sorted by name; if any id is given, only those by id."""
    gateway = context.gateway
    image = gateway.cluster.image
    asked = request.topics
    if asked is None or (not asked and context.version == 0):
        for _, topic in sorted((topic.name, topic) for topic in image.topics.values()):
            yield gateway.topic_metadata.steps_of(image, topic, context.listener)
        return
    ids = {TopicId(one.topic_id) for one in asked if one.topic_id != ZERO_UUID}
    for topic_id in sorted(ids, key=partial(_name, image)):
        yield _by_id(context, topic_id)
    for name in () if ids else sorted({one.name or "" for one in asked}):
        yield _by_name(context, name)


def _name(image: MetadataImage, topic_id: TopicId) -> str:
    topic = image.topics.get(topic_id)
    return "" if topic is None else topic.name


def _check(topics: list[MetadataRequestTopic], version: int) -> None:
    for one in topics:
        if one.name is None and (version < TOPICS_BY_ID_SINCE or one.topic_id == ZERO_UUID):
            raise InvalidRequest("a topic has neither a name nor an id")
        if one.topic_id != ZERO_UUID and version < TOPICS_BY_ID_SINCE:
            raise InvalidRequest(f"version {version} does not find topics by id")


def _by_id(context: RequestContext, topic_id: TopicId) -> Building:
    gateway = context.gateway

    def found() -> Building:
        topic = gateway.cluster.topic(topic_id)
        return gateway.topic_metadata.steps_of(gateway.cluster.image, topic, context.listener)

    return attempt(
        found,
        lambda code, _message: _at_once(
            MetadataResponseTopic(error_code=code, name=None, topic_id=topic_id)
        ),
    )


def _by_name(context: RequestContext, name: str) -> Building:
    gateway = context.gateway

    def found() -> Building:
        check_name(name)
        topic = gateway.cluster.topic_named(name)
        return gateway.topic_metadata.steps_of(gateway.cluster.image, topic, context.listener)

    return attempt(
        found,
        lambda code, _message: _at_once(
            MetadataResponseTopic(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS)
        ),
    )


def _at_once(topic: MetadataResponseTopic) -> Building:
    yield 0
    return topic


def _with_operations(topic: MetadataResponseTopic) -> MetadataResponseTopic:
    if topic.name is None:
        return topic
    return replace(topic, topic_authorized_operations=TOPIC_OPERATIONS)


def _without_listener_errors(topic: MetadataResponseTopic) -> MetadataResponseTopic:
    """Replace LISTENER_NOT_FOUND, which older versions do not know, by LEADER_NOT_AVAILABLE."""
    missing = int(ErrorCode.LISTENER_NOT_FOUND)
    if all(part.error_code != missing for part in topic.partitions):
        return topic
    unavailable = int(ErrorCode.LEADER_NOT_AVAILABLE)
    return replace(
        topic,
        partitions=[
            replace(part, error_code=unavailable) if part.error_code == missing else part
            for part in topic.partitions
        ],
    )


def _without_offline(topic: MetadataResponseTopic) -> MetadataResponseTopic:
    """Leave out offline replicas, which version 0 does not know, and report an error instead."""
    return replace(topic, partitions=[_present(part) for part in topic.partitions])


def _present(part: MetadataResponsePartition) -> MetadataResponsePartition:
    absent = set(part.offline_replicas)
    if not absent:
        return part
    return replace(
        part,
        error_code=part.error_code or int(ReplicaNotAvailable.code),
        replica_nodes=[one for one in part.replica_nodes if one not in absent],
        isr_nodes=[one for one in part.isr_nodes if one not in absent],
    )
