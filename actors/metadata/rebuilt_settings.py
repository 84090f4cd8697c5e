"""Settings of rebuilt metadata: what was in force last, and where that is not known nothing goes.

A topic's own settings stand in the `partition.json` of each copy, with the place in the metadata
where they were found, and in a copy of the metadata that is left:

| what the sources say                                            | becomes                       |
|-----------------------------------------------------------------|-------------------------------|
| the same                                                        | that                          |
| differ, each with its place in the metadata                     | those of the highest place    |
| differ, and who says otherwise has followed up to that place    | unknown: a file is not        |
|                                                                 | written yet, or was before    |
| differ, one without its place (version 1 of the file)           | unknown                       |
| nothing, in a directory whose broker has followed further, or   | unknown                       |
| where the others lack their place                               |                               |
| nothing at all                                                  | unknown                       |

Unknown means: what all sources agree on, with retention and cleaning off. Cluster-wide and
brokers' settings are in copies of the metadata only. Without one, or with one that ends before
what brokers have followed, retention and cleaning are off cluster-wide until somebody says
otherwise: that holds for every topic that does not set them itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from raylog.actors.config import ResourceType
from raylog.actors.config_keys import LONG_MAX
from raylog.actors.metadata.followed import contradiction
from raylog.actors.metadata.found import UNKNOWN, FoundBroker, FoundReplica, Position
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import ConfigChanged
from raylog.actors.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from raylog.actors.ports import TopicId

INTERNAL_TOPICS = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
KEEP_EVERYTHING = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""Settings of a topic whose own are not known."""
COMPACTED = {"cleanup.policy": "compact"}
"""Those of an internal topic: only its latest records count."""
KEEP_CLUSTER_WIDE = {
    "log.cleanup.policy": "delete",
    "log.retention.ms": "-1",
    "log.retention.bytes": "-1",
    "log.cleaner.min.compaction.lag.ms": str(LONG_MAX),
    "log.cleaner.max.compaction.lag.ms": str(LONG_MAX),
}
"""Cluster-wide settings where those that were in force are not known. They go before those that
brokers are started with."""
COMPACTED_AT_ONCE = {"min.compaction.lag.ms": "0"}
"""Internal topics are not meant by them: uncompacted they would grow for ever."""


class RebuiltSettings(NamedTuple):
    """A topic's own settings."""

    settings: dict[str, str]
    known: bool
    differ: bool = False
    """Whether they are not known because sources differ."""


class _Told(NamedTuple):
    settings: Mapping[str, str] | None
    at: Position
    followed: Position
    """How far who says so has followed the metadata."""


def topic_settings(
    topic_id: TopicId,
    name: str,
    copies: Iterable[tuple[FoundBroker, FoundReplica]],
    image: MetadataImage | None,
) -> RebuiltSettings:
    """A topic's own settings, by the table above; `image` is a copy of the metadata."""
    told = [_Told(one.settings, one.settings_at, broker.followed_to) for broker, one in copies]
    if image is not None and topic_id in image.topics:
        at = image.controller_epoch, image.offset
        told.append(_Told(_own(image, topic_id), at, at))
    known = [one for one in told if one.settings is not None]
    if not known:
        return RebuiltSettings(_kept(name, {}), known=False)
    newest = max(known, key=lambda one: (one.at, one.followed))
    assert newest.settings is not None
    agreeing = [one for one in known if one.settings == newest.settings]
    others = [one for one in known if one.settings != newest.settings]
    followed = max(one.followed for one in agreeing)
    unclear = any(one.at == UNKNOWN or one.followed >= newest.at for one in others)
    silent = any(
        one.settings is None and (newest.at == UNKNOWN or one.followed > followed) for one in told
    )
    if not (unclear or silent):
        return RebuiltSettings(dict(newest.settings), known=True)
    shared = set.intersection(*(set((one.settings or {}).items()) for one in known))
    return RebuiltSettings(_kept(name, dict(shared)), known=False, differ=unclear)


def _own(image: MetadataImage, topic_id: TopicId) -> Mapping[str, str]:
    return image.configs_of(ResourceType.TOPIC, image.topics[topic_id].name)


def _kept(name: str, shared: Mapping[str, str]) -> dict[str, str]:
    return {**shared, **(COMPACTED if name in INTERNAL_TOPICS else KEEP_EVERYTHING)}


def is_newest(image: MetadataImage | None, brokers: Sequence[FoundBroker]) -> bool:
    """Whether a copy of the metadata goes as far as anything that brokers have followed."""
    return image is not None and all(
        contradiction(broker.followed, image) is None for broker in brokers
    )


def other_settings(image: MetadataImage | None, *, newest: bool) -> list[ConfigChanged]:
    """Settings of the cluster, of brokers and of groups: those of a copy of the metadata.

    With one that is not the newest, or none, nothing in them removes records.
    """
    found: dict[tuple[int, str], dict[str, str]] = {}
    if image is not None:
        found = {
            one: dict(own) for one, own in image.configs.items() if one[0] != ResourceType.TOPIC
        }
    if not newest:
        for (kind, _), own in found.items():
            if kind == ResourceType.BROKER:
                for key in KEEP_CLUSTER_WIDE:
                    own.pop(key, None)
        found.setdefault((ResourceType.BROKER, ""), {}).update(KEEP_CLUSTER_WIDE)
    return [
        ConfigChanged(kind, name, key, value)
        for (kind, name), own in sorted(found.items())
        for key, value in sorted(own.items())
    ]
