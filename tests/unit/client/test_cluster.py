"""The metadata cache."""

import pytest

from raylog.client.cluster import ClusterView, TopicPartition
from raylog.wire.errors import ErrorCode, LeaderNotAvailable, UnknownTopicOrPartition
from raylog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from raylog.wire.uuids import ZERO_UUID
from tests.worlds.client.cluster import FakeCluster, topic_id

KEY = TopicPartition("t", 0)


def view_of(cluster: FakeCluster, *names: str) -> ClusterView:
    view = ClusterView()
    view.update(cluster.metadata(asking(*names)))
    return view


def asking(*names: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])


def test_leaders_and_names() -> None:
    view = view_of(FakeCluster(2, {"t": {0: 2, 1: -1}}), "t")
    assert view.leader_of(KEY) == 2
    assert view.name_of(topic_id("t")) == "t"
    with pytest.raises(LeaderNotAvailable, match="t-1"):
        view.leader_of(TopicPartition("t", 1))
    with pytest.raises(UnknownTopicOrPartition, match="below 2, found 7"):
        view.leader_of(TopicPartition("t", 7))
    with pytest.raises(UnknownTopicOrPartition, match="not in the metadata"):
        view.topic("u")


def test_a_refused_topic_raises_its_error_and_recovers() -> None:
    cluster = FakeCluster()
    view = view_of(cluster, "t")
    with pytest.raises(UnknownTopicOrPartition, match="topic 't'"):
        view.topic("t")
    cluster.topics["t"] = {0: 1}
    view.update(cluster.metadata(asking("t")))
    assert view.leader_of(KEY) == 1


def test_a_leader_of_an_older_epoch_does_not_come_back() -> None:
    cluster = FakeCluster(3, {"t": {0: 1}}, epochs={"t": 5})
    view = view_of(cluster, "t")
    assert not view.moved(KEY, 2, 5)
    assert not view.moved(KEY, 9, 6), "an unknown broker"
    assert view.moved(KEY, 2, 6)
    view.update(cluster.metadata(asking("t")))
    assert view.leader_of(KEY) == 2, "the broker that answered lags behind"
    cluster.topics["t"], cluster.epochs["t"] = {0: 3}, 7
    view.update(cluster.metadata(asking("t")))
    assert view.leader_of(KEY) == 3


def test_a_topic_of_the_same_name_is_another_one() -> None:
    cluster = FakeCluster(2, {"t": {0: 1}}, epochs={"t": 5})
    view = view_of(cluster, "t")
    response = cluster.metadata(asking("t"))
    response.topics[0].topic_id = b"other".ljust(16, b"\0")
    response.topics[0].partitions[0].leader_epoch = 0
    response.topics[0].partitions[0].leader_id = 2
    view.update(response)
    assert view.leader_of(KEY) == 2
    assert view.name_of(topic_id("t")) is None
    view.forget(["t"])
    assert not view.topics


def test_leader_epochs_outlive_an_error_and_an_answer_about_all_topics() -> None:
    cluster = FakeCluster(2, {"t": {0: 2}}, epochs={"t": 7})
    view = view_of(cluster, "t")
    failed = cluster.metadata(asking("t"))
    failed.topics[0].error_code = ErrorCode.LEADER_NOT_AVAILABLE
    view.update(failed)
    with pytest.raises(LeaderNotAvailable):
        view.topic("t")
    cluster.topics["t"], cluster.epochs["t"] = {0: 1}, 5
    view.update(cluster.metadata(asking("t")))
    assert (view.leader_of(KEY), view.partition(KEY).leader_epoch) == (2, 7)
    view.update(cluster.metadata(MetadataRequest(topics=None)), is_whole=True)
    assert (view.leader_of(KEY), view.partition(KEY).leader_epoch) == (2, 7)


def test_without_ids_a_topic_that_was_gone_is_another_one() -> None:
    cluster = FakeCluster(2, {"t": {0: 2}}, epochs={"t": 7}, ids={"t": ZERO_UUID})
    view = view_of(cluster, "t")
    cluster.topics.clear()
    view.update(cluster.metadata(asking("t")))
    cluster.topics["t"], cluster.epochs["t"] = {0: 1}, 0
    view.update(cluster.metadata(asking("t")))
    assert view.leader_of(KEY) == 1


def test_an_answer_about_all_topics_forgets_those_it_lacks() -> None:
    cluster = FakeCluster(1, {"t": {0: 1}})
    view = view_of(cluster, "t", "missing")
    assert set(view.failures) == {"missing"}
    cluster.topics = {"u": {0: 1}}
    view.update(cluster.metadata(MetadataRequest(topics=None)), is_whole=True)
    assert (set(view.topics), view.failures, view.name_of(topic_id("t"))) == ({"u"}, {}, None)
