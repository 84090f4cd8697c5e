"""The retry and dead-letter topics of a group: made before they are needed."""

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
    """Create what is missing, with as many partitions as the topic it belongs to.

    What a broker refuses to create, or does not answer about, is logged: letters to it wait, and
    before each is tried again it is created anew.
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
