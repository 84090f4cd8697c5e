"""Settings in rebuilt metadata: the latest effective ones; without these nothing is removed."""

from __future__ import annotations

import pytest

from raylog.actors.broker.rules.directories import directory_name
from raylog.actors.common_messages import TopicId
from raylog.actors.config import BrokerSettings, ResourceType, check_topic
from raylog.actors.metadata.configs import broker_configs, topic_config
from raylog.actors.metadata.followed import Followed
from raylog.actors.metadata.found import UNKNOWN, FoundBroker, FoundReplica, Position
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.rebuilding import Choices, plan_rebuild, records_of
from raylog.actors.metadata.rebuilt_settings import KEEP_CLUSTER_WIDE, KEEP_EVERYTHING
from raylog.actors.metadata.records import (
    ClusterNamed,
    ConfigChanged,
    LeaderChanged,
    PartitionCreated,
    Record,
    TopicCreated,
)

TOPIC = TopicId(b"o" * 16)
HOUR, EVER = {"retention.ms": "3600000"}, {"retention.ms": "-1"}
Settings = dict[str, str] | None


def broker(
    broker_id: int,
    settings: Settings,
    at: Position = UNKNOWN,
    followed: Position = UNKNOWN,
    topic: str = "t",
) -> FoundBroker:
    """A broker that has a copy, whose file says so, and that has followed the metadata so far."""
    directory = directory_name(topic, (TOPIC, 0))
    one = FoundReplica(TOPIC, 0, topic, settings, 0, 10, 0, -1, True, directory, 1, at)
    notes = Followed("old" if followed != UNKNOWN else "", *followed)
    return FoundBroker(broker_id, "c", f"d{broker_id}", 5, 0, 3, (one,), notes)


def left(*settings: Record, at: Position = (3, 1_000), topic: str = "t") -> MetadataImage:
    """A copy of the metadata."""
    image = MetadataImage()
    begun: list[Record] = [LeaderChanged(at[0]), ClusterNamed("c", "old")]
    begun += TopicCreated(TOPIC, topic), PartitionCreated(TOPIC, 0, (0,), (0,), 0)
    image.apply_update(-1, at[1], [*begun, *settings])
    return image


def of_topic(settings: dict[str, str]) -> list[Record]:
    return [ConfigChanged(ResourceType.TOPIC, "t", *one) for one in settings.items()]


def rebuilt(*found: FoundBroker, image: MetadataImage | None = None) -> MetadataImage:
    plan = plan_rebuild(found, Choices(), "new", image)
    assert plan.problems == ()
    made = MetadataImage()
    made.apply_update(-1, plan.offset, records_of(plan))
    return made


def own(image: MetadataImage, topic: str = "t") -> dict[str, str]:
    return image.configs_of(ResourceType.TOPIC, topic)


@pytest.mark.parametrize(
    ("copies", "expected"),
    [
        ([broker(0, HOUR)], HOUR),
        ([broker(0, {}), broker(1, {})], {}),
        # a broker that was down when they changed
        ([broker(0, EVER, (3, 90), (3, 95)), broker(1, {}, (3, 40), (3, 60))], EVER),
        ([broker(0, HOUR, (3, 40), (3, 60)), broker(1, EVER, (3, 90), (3, 95))], EVER),
        ([broker(0, {}, (3, 90)), broker(1, HOUR, (3, 40)), broker(2, HOUR, (3, 41))], {}),
        ([broker(0, EVER, (4, 50)), broker(1, HOUR, (3, 900))], EVER),
        # one without a file, whose broker has not followed further
        ([broker(0, None, followed=(3, 60)), broker(1, EVER, (3, 50), (3, 60))], EVER),
    ],
)
def test_the_latest_settings_that_a_directory_has_noted_win(
    copies: list[FoundBroker], expected: dict[str, str]
) -> None:
    assert own(rebuilt(*copies)) == expected
    assert own(rebuilt(*reversed(copies))) == expected


@pytest.mark.parametrize(
    "copies",
    [
        [broker(0, EVER), broker(1, {})],
        [broker(0, EVER), broker(1, {}), broker(2, {})],
        [broker(0, EVER, (3, 90)), broker(1, HOUR)],
        [broker(0, HOUR, (3, 90)), broker(1, EVER)],
        # who says otherwise has seen the change: his file is from before, or from after it
        [broker(0, HOUR, (3, 90)), broker(1, EVER, (3, 40), (3, 90))],
        # a damaged file, and a broker that has seen less
        [broker(0, None, followed=(3, 90)), broker(1, HOUR, (3, 50), (3, 60))],
        [broker(0, None), broker(1, HOUR)],
        [broker(0, None)],
    ],
)
def test_where_the_latest_are_not_known_a_topic_keeps_everything(copies: list[FoundBroker]) -> None:
    assert own(rebuilt(*copies)) == KEEP_EVERYTHING
    assert own(rebuilt(*reversed(copies))) == KEEP_EVERYTHING


def test_differing_settings_keep_only_common_values_and_are_noted() -> None:
    bytes_max = {"max.message.bytes": "7"}
    copies = [broker(0, {**HOUR, **bytes_max}), broker(1, {**EVER, **bytes_max})]
    assert own(rebuilt(*copies)) == {**KEEP_EVERYTHING, **bytes_max}
    plan = plan_rebuild(copies, Choices(), "new")
    assert not plan.topics[0].settings_known
    assert any("topic t's settings differs" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (left(*of_topic(EVER)), EVER),  # it goes further than the file
        (left(*of_topic(EVER), at=(3, 60)), HOUR),
        (left(at=(3, 60)), HOUR),
    ],
)
def test_a_copy_of_the_metadata_counts_for_its_place(
    image: MetadataImage, expected: dict[str, str]
) -> None:
    assert own(rebuilt(broker(0, HOUR, (3, 90), (3, 95)), image=image)) == expected


def test_a_copy_of_the_metadata_tells_what_no_directory_does() -> None:
    assert own(rebuilt(broker(0, None), image=left(*of_topic(HOUR)))) == HOUR


# ---- settings of the cluster ---------------------------------------------------------------------

EVERYWHERE = ConfigChanged(ResourceType.BROKER, "", "log.retention.ms", "-1")
SHORT = ConfigChanged(ResourceType.BROKER, "", "log.retention.ms", "5")
SHORT_HERE = ConfigChanged(ResourceType.BROKER, "0", "log.retention.ms", "5")
OF_A_GROUP = ConfigChanged(ResourceType.GROUP, "g", "consumer.session.timeout.ms", "45001")
STARTED_WITH = BrokerSettings(
    {
        "log.retention.ms": "1000",
        "log.retention.bytes": "1000",
        "log.cleanup.policy": "compact",
        "log.cleaner.max.compaction.lag.ms": "1000",
    }
)


def in_force(image: MetadataImage, topic: str = "t") -> dict[str, str]:
    found = topic_config(image, topic, broker_configs(image, STARTED_WITH, 0))
    return {key: found[key] for key in (*KEEP_EVERYTHING, "min.compaction.lag.ms")}


NOTHING_GOES = {**KEEP_EVERYTHING, "min.compaction.lag.ms": str(2**63 - 1)}


@pytest.mark.parametrize(
    "image",
    [
        None,
        left(SHORT, at=(3, 60)),  # older than what the broker has followed
        left(SHORT_HERE, at=(3, 60)),
        left(at=(3, 60)),
    ],
)
def test_without_the_clusters_settings_nothing_goes_that_has_none_of_its_own(
    image: MetadataImage | None,
) -> None:
    found = broker(0, {}, (3, 50), (3, 90))
    made = rebuilt(found, image=image)
    assert own(made) == {}
    assert in_force(made) == NOTHING_GOES
    check_topic({}, broker_configs(made, STARTED_WITH))
    (note,) = plan_rebuild([found], Choices(), "new", image).notes
    assert "raylog configs alter broker --unset log.cleanup.policy --unset log.retention.ms" in note


def test_a_compacted_topic_is_not_compacted_before_its_lags_are_known() -> None:
    made = rebuilt(broker(0, {"cleanup.policy": "compact"}, (3, 50)))
    assert in_force(made)["min.compaction.lag.ms"] == str(2**63 - 1)


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
@pytest.mark.parametrize("settings", [None, {"cleanup.policy": "compact"}])
def test_internal_topics_are_compacted_as_ever(topic: str, settings: Settings) -> None:
    made = rebuilt(broker(0, settings, topic=topic))
    assert own(made, topic) == {"cleanup.policy": "compact", "min.compaction.lag.ms": "0"}


def test_the_clusters_settings_of_the_newest_copy_of_the_metadata_hold_again() -> None:
    image = left(EVERYWHERE, SHORT_HERE, OF_A_GROUP)
    found = broker(0, {}, (3, 50), (3, 90))
    assert plan_rebuild([found], Choices(), "new", image).notes == ()
    made = rebuilt(found, image=image)
    assert made.configs == image.configs
    assert in_force(made)["retention.ms"] == "5"
    assert own(rebuilt(broker(0, {}, topic="__consumer_offsets"), image=image)) == {}


def test_older_metadata_copy_restores_only_settings_that_remove_no_records() -> None:
    size = ConfigChanged(ResourceType.BROKER, "0", "message.max.bytes", "7000")
    made = rebuilt(
        broker(0, {}, (3, 50), (3, 90)), image=left(SHORT_HERE, size, OF_A_GROUP, at=(3, 60))
    )
    assert made.configs == {
        (ResourceType.BROKER, ""): KEEP_CLUSTER_WIDE,
        (ResourceType.BROKER, "0"): {"message.max.bytes": "7000"},
        (ResourceType.GROUP, "g"): {"consumer.session.timeout.ms": "45001"},
    }
