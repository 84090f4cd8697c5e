"""The retry and dead-letter topics of a group, created before they are needed."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from raylog.client.admin.aio import AsyncAdmin
from raylog.client.admin.topics import NewTopic
from raylog.client.errors import ConnectionLost, NotConnected, RequestTimedOut
from raylog.client.parallel.policy import FailureTopics
from raylog.wire.errors import KafkaError, TopicAlreadyExists

log = logging.getLogger(__name__)


async def ensure_topics(admin: AsyncAdmin, names: FailureTopics, topics: Sequence[str]) -> None:
    """Create missing topics, with the partition count of the topic that they belong to.

    If a broker refuses or does not answer, that is logged: letters for the topic wait, and its
    creation is retried before each delivery is.
    """
    view = (await admin.metadata(None)).topics
    for topic in topics:
        found = view.get(topic)
        count = max(1, len(found.partitions)) if found is not None else 1
        for name in names.all_of(topic):
            if name in view:
                continue
            try:
                await admin.create_topics([NewTopic(name, count)])
            except TopicAlreadyExists:
                continue
            except (KafkaError, ConnectionLost, NotConnected, RequestTimedOut) as error:
                log.warning("topic %s could not be created: %s", name, error)
