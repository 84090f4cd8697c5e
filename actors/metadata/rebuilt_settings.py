"""Settings of rebuilt metadata: the last effective ones; where unknown, nothing is removed.

A topic's own settings are in the `partition.json` of each copy, with the place in the metadata from
which they were recorded, and in a remaining copy of the metadata:

| the sources                                                     | result                        |
|-----------------------------------------------------------------|-------------------------------|
| agree                                                           | what they say                 |
| differ, each with its place in the metadata                     | those of the latest place     |
| differ, and a source that differs has followed up to that place | unknown: one file is outdated |
| differ, one without its place (version 1 of the file)           | unknown                       |
| say nothing, in a directory whose broker has followed further,  | unknown                       |
| or where the others lack their place                            |                               |
| say nothing at all                                              | unknown                       |

Unknown means: what all sources agree on, with retention and cleaning off. Cluster-wide and broker
settings are only in copies of the metadata. Without one, or with one that ends before what brokers
have followed, retention and cleaning are off cluster-wide until an operator changes that. This
affects every topic that does not set them itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from raylog.actors.common_messages import TopicId
from raylog.actors.config import ResourceType
from raylog.actors.config.keys import LONG_MAX
from raylog.actors.coordinator_kinds import KIND_OF_TOPIC
from raylog.actors.metadata.followed import contradiction
from raylog.actors.metadata.found import UNKNOWN, FoundBroker, FoundReplica, Position
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import ConfigChanged

KEEP_EVERYTHING = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""The settings of a topic whose own settings are unknown."""
COMPACTED = {"cleanup.policy": "compact"}
"""The settings of an internal topic, in which only the latest record of each key counts."""
KEEP_CLUSTER_WIDE = {
    "log.cleanup.policy": "delete",
    "log.retention.ms": "-1",
    "log.retention.bytes": "-1",
    "log.cleaner.min.compaction.lag.ms": str(LONG_MAX),
    "log.cleaner.max.compaction.lag.ms": str(LONG_MAX),
}
"""Cluster-wide settings if the effective ones are unknown. They override the start-up settings of
brokers."""
COMPACTED_AT_ONCE = {"min.compaction.lag.ms": "0"}
"""Exempts internal topics from the settings above, as they would grow forever without
compaction."""


class RebuiltSettings(NamedTuple):
    """A topic's own settings."""

    settings: dict[str, str]
    known: bool
    differ: bool = False
    """Whether they are unknown because sources differ."""


class _Source(NamedTuple):
    settings: Mapping[str, str] | None
    at: Position
    followed: Position
    """How far the source has followed the metadata."""


def topic_settings(
    topic_id: TopicId,
    name: str,
    copies: Iterable[tuple[FoundBroker, FoundReplica]],
    image: MetadataImage | None,
) -> RebuiltSettings:
    """Decide a topic's own settings by the table above; `image` is a copy of the metadata."""
    sources = [_Source(one.settings, one.settings_at, broker.followed_to) for broker, one in copies]
    if image is not None and topic_id in image.topics:
        at = image.controller_epoch, image.offset
        own = image.configs_of(ResourceType.TOPIC, image.topics[topic_id].name)
        sources.append(_Source(own, at, at))
    known = [one for one in sources if one.settings is not None]
    if not known:
        return RebuiltSettings(_kept(name, {}), known=False)
    newest = max(known, key=lambda one: (one.at, one.followed))
    assert newest.settings is not None
    agreeing = [one for one in known if one.settings == newest.settings]
    others = [one for one in known if one.settings != newest.settings]
    followed = max(one.followed for one in agreeing)
    unclear = any(one.at == UNKNOWN or one.followed >= newest.at for one in others)
    silent = any(
        one.settings is None and (newest.at == UNKNOWN or one.followed > followed)
        for one in sources
    )
    if not (unclear or silent):
        return RebuiltSettings(dict(newest.settings), known=True)
    shared = set.intersection(*(set((one.settings or {}).items()) for one in known))
    return RebuiltSettings(_kept(name, dict(shared)), known=False, differ=unclear)


def _kept(name: str, shared: Mapping[str, str]) -> dict[str, str]:
    return {**shared, **(COMPACTED if name in KIND_OF_TOPIC else KEEP_EVERYTHING)}


def is_newest(image: MetadataImage | None, brokers: Sequence[FoundBroker]) -> bool:
    """Whether a copy of the metadata goes as far as any broker has followed."""
    return image is not None and all(
        contradiction(broker.followed, image) is None for broker in brokers
    )


def other_settings(image: MetadataImage | None, *, newest: bool) -> list[ConfigChanged]:
    """Return the settings of the cluster, brokers and groups from a copy of the metadata.

    If there is no copy, or it is not the newest, the settings remove no records.
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
