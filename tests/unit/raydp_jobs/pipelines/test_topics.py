"""A pipeline's topics: missing ones, those it writes to, and how far they are read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raylog.client import BlockingClient, ClientError, NewTopic, TopicPartition
from raylog.client.admin.groups import CommittedOffset
from raylog.raydp_jobs.pipelines.failures import PipelineFailed
from raylog.raydp_jobs.pipelines.manifests import NEWEST, encode_manifest
from raylog.raydp_jobs.pipelines.spec import PipelineSpec
from raylog.raydp_jobs.pipelines.topics import TopicLag, check_topics, done, lags
from raylog.sink.batches import KafkaRange
from raylog.sink.marks import Mark
from raylog.sink.state import WrittenBatch
from raylog.testing import EmbeddedBroker

T, U = TopicPartition("t", 0), TopicPartition("u", 0)
TIMEOUT_MS = 5_000


@pytest.fixture(scope="module")
def clusters() -> Iterator[list[str]]:
    """Two, with five records in each of the topics t and u."""
    with EmbeddedBroker() as one, EmbeddedBroker() as other:
        for broker in (one, other):
            with BlockingClient(broker.bootstrap) as client:
                client.create_topics([NewTopic(name, 1) for name in ("t", "u", "out")])
                with client.producer() as producer:
                    for n in range(10):
                        producer.send("tu"[n % 2], b"%d" % n)
        yield [one.bootstrap, other.bootstrap]


@pytest.fixture
def own(clusters: list[str]) -> str:
    return clusters[0]


@pytest.fixture
def far(clusters: list[str]) -> str:
    """Another cluster than the pipeline's."""
    return clusters[1]


def spec(folder: Path, *sources: dict[str, Any], **fields: Any) -> PipelineSpec:
    """A pipeline of several sources, named a, b and so on, which lands unless told otherwise."""
    return PipelineSpec.model_validate(
        {
            "name": "lagging",
            "checkpoint": folder,
            "sources": {
                name: {"format": "binary", **source}
                for name, source in zip("abc", sources, strict=False)
            },
            "transform": {"sql": "SELECT value FROM a"},
            "sink": {"path": folder / "landed"},
            **fields,
        }
    )


def checkpoint(folder: Path, batch_id: int, ends: dict[str, dict[str, int]]) -> None:
    """A batch that is done, as Spark notes it."""
    for name in ("offsets", "commits", "sources/0"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text('{"id": "q"}')
    (folder / "offsets" / str(batch_id)).write_text(f"v1\n{{}}\n{json.dumps(ends)}")
    (folder / "commits" / str(batch_id)).write_text("v1\n{}")


def test_done_offsets_are_those_that_spark_committed(tmp_path: Path) -> None:
    assert done(tmp_path) == {}
    checkpoint(tmp_path, 2, {"t": {"0": 30}})
    checkpoint(tmp_path, 10, {"t": {"0": 90}})
    (tmp_path / "commits" / ".10.crc").touch()
    assert done(tmp_path) == {T: 90}


def test_lag_by_the_marks_of_an_older_build(own: str, tmp_path: Path) -> None:
    """Offsets that the sink did not commit do not count."""
    offsets = {
        T: CommittedOffset(2, -1, '{"query": "q", "batch": 1}'),
        U: CommittedOffset(4, -1, "somebody else's"),
    }
    with BlockingClient(own) as client:
        client.commit_group_offsets("raylog-sink-lagging", offsets)
        wanted = spec(tmp_path, {"topics": ["t", "u"]}, dead_letters="bad")
        assert lags(own, wanted, TIMEOUT_MS) == [TopicLag("a", "t", 3), TopicLag("a", "u", None)]
        client.delete_groups(["raylog-sink-lagging"])


def test_lag_of_what_landed_by_its_manifest(own: str, far: str, tmp_path: Path) -> None:
    """On the cluster that it was read from."""
    with BlockingClient(far) as client:
        far_id = client.metadata([]).cluster_id or ""
    (tmp_path / "landed").mkdir()
    batch = WrittenBatch(Mark("q", 3), (KafkaRange({T: 0}, {T: 4}, far_id),))
    (tmp_path / "landed" / NEWEST).write_text(encode_manifest(batch, 4))
    wanted = spec(tmp_path, {"topics": ["t"]}, {"topics": ["t"], "bootstrap": far})
    assert lags(own, wanted, TIMEOUT_MS) == [TopicLag("a", "t", None), TopicLag("b", "t", 1)]


def test_lag_of_what_landed_without_a_manifest(own: str, tmp_path: Path) -> None:
    checkpoint(tmp_path, 0, {"t": {"0": 5}, "u": {"0": 1}})
    wanted = spec(tmp_path, {"topics": ["t", "u"]})
    assert lags(own, wanted, TIMEOUT_MS) == [TopicLag("a", "t", 0), TopicLag("a", "u", 4)]


def test_lag_of_the_topics_of_a_pattern(own: str, tmp_path: Path) -> None:
    checkpoint(tmp_path, 0, {"t": {"0": 5}})
    wanted = spec(tmp_path, {"pattern": "t|u|none"})
    assert lags(own, wanted, TIMEOUT_MS) == [TopicLag("a", "t", 0), TopicLag("a", "u", None)]


def test_lag_on_a_cluster_that_cannot_be_asked(own: str, tmp_path: Path) -> None:
    """It wants encryption, or is not there; others are told all the same."""
    checkpoint(tmp_path, 0, {"t": {"0": 5}})
    secured = {"topics": ["u"], "bootstrap": "far:9092", "kafka": {"security.protocol": "SSL"}}
    gone = {"pattern": "t.*", "bootstrap": "127.0.0.1:1"}
    wanted = spec(tmp_path, {"topics": ["t"]}, secured, gone)
    assert lags(own, wanted, 300) == [
        TopicLag("a", "t", 0),
        TopicLag("b", "u", None),
        TopicLag("c", "t.*", None),
    ]
    with pytest.raises(ClientError):
        lags("127.0.0.1:1", wanted, 300)


@pytest.mark.parametrize(
    ("source", "fields", "says"),
    [
        ({"topics": ["none"]}, {}, "sources.a: there is no topic none on .*: create it with"),
        ({"topics": ["t"]}, {"sink": {"topic": "none"}}, "sink.topic: there is no topic none on "),
        ({"topics": ["t"]}, {"dead_letters": "none"}, "dead_letters: there is no topic none on "),
        (
            {"topics": ["t"]},
            {"tables": {"c": {"topic": "none", "format": "text"}}},
            "tables.c: there is no topic none on ",
        ),
        (
            {"pattern": "__.*"},
            {},
            r"sources.a.pattern: '__\.\*': includes __raylog_sinks, which the pipeline writes to",
        ),
    ],
)
def test_topics_that_cannot_be_are_reported(
    own: str, tmp_path: Path, source: dict[str, Any], fields: dict[str, Any], says: str
) -> None:
    with pytest.raises(PipelineFailed, match=says):
        check_topics(own, spec(tmp_path, source, **fields))


def test_topics_of_another_cluster_are_looked_for_there(own: str, far: str, tmp_path: Path) -> None:
    with BlockingClient(far) as client:
        client.create_topics([NewTopic("only-there", 1)])
    check_topics(own, spec(tmp_path, {"topics": ["only-there"], "bootstrap": far}))
    says = f"no topic none on {far}: create it with `raylog topics create none --bootstrap {far}`"
    with pytest.raises(PipelineFailed, match=says):
        check_topics(own, spec(tmp_path, {"topics": ["none"], "bootstrap": far}))


def test_a_topic_may_be_mirrored_under_its_name(own: str, far: str, tmp_path: Path) -> None:
    """From another cluster, and not from the same one by another address."""
    sink = {"topic": "t"}
    check_topics(own, spec(tmp_path, {"topics": ["t"], "bootstrap": far}, sink=sink))
    same = own.replace("127.0.0.1", "localhost")
    with pytest.raises(PipelineFailed, match=r"sources\.a\.topics: includes t, which"):
        check_topics(own, spec(tmp_path, {"topics": ["t"], "bootstrap": same}, sink=sink))


def test_a_cluster_that_wants_credentials_is_left_to_spark(own: str, tmp_path: Path) -> None:
    kafka = {"security.protocol": "SASL_SSL"}
    source = {"topics": ["t"], "bootstrap": "127.0.0.1:1", "kafka": kafka}
    check_topics(own, spec(tmp_path, source))
