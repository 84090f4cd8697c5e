"""Fetch sessions (KIP-227): only changes are sent."""

import pytest

from raylog.client.cluster import TopicPartition
from raylog.client.consumer.session import Asked, FetchSession
from raylog.wire.errors import ErrorCode

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


ID, NEW_ID = b"t" * 16, b"n" * 16


def asked(key: TopicPartition, offset: int = 0) -> Asked:
    return Asked(key, ID, offset, 0, 0)


def opened(*keys: TopicPartition) -> FetchSession:
    session = FetchSession()
    for key in keys:
        session.want(key, ID)
    first = session.next(with_session=True)
    assert (first.session_id, first.epoch, first.partitions) == (0, 0, list(keys))
    session.tell(map(asked, keys))
    session.answered(7)
    return session


def test_after_the_first_request_only_changes_are_named() -> None:
    session = opened(T0, T1)
    session.want(T1, ID)
    second = session.next(with_session=True)
    assert (second.session_id, second.epoch) == (7, 1)
    assert (second.partitions, second.forgotten) == ([T1], [])
    session.answered(7)
    third = session.next(with_session=True)
    assert (third.epoch, third.partitions) == (2, [])


def test_dropped_partition_is_forgotten_once_and_may_return() -> None:
    session = opened(T0, T1)
    session.drop(T0)
    second = session.next(with_session=True)
    assert [one.key for one in second.forgotten] == [T0]
    session.answered(7)
    session.drop(T1)
    session.want(T1, ID)
    third = session.next(with_session=True)
    assert (third.partitions, third.forgotten) == ([T1], [])


def test_a_topic_that_was_created_anew_leaves_by_its_old_id() -> None:
    session = opened(T0, T1)
    session.drop(T0)
    session.want(T0, NEW_ID)
    second = session.next(with_session=True)
    assert second.partitions == [T0]
    assert [(one.key, one.topic_id) for one in second.forgotten] == [(T0, ID)]
    session.tell([Asked(T0, NEW_ID, 0, 0, 0)])
    session.answered(7)
    session.want(T0, NEW_ID)
    assert session.next(with_session=True).forgotten == []


@pytest.mark.parametrize(
    ("code", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 7),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 7),
        (None, 7),
    ],
)
def test_a_session_that_is_refused_or_lost_begins_anew(
    code: ErrorCode | None, session_id: int
) -> None:
    session = opened(T0, T1)
    session.begin_anew(code)
    again = session.next(with_session=True)
    assert (again.session_id, again.epoch, again.partitions) == (session_id, 0, [T0, T1])


def test_request_without_a_session_names_every_partition() -> None:
    session = opened(T0)
    session.answered(0)
    assert session.next(with_session=True).partitions == [T0]
    old = session.next(with_session=False)
    assert (old.session_id, old.epoch, old.partitions) == (0, -1, [T0])


def test_epochs_begin_again_behind_the_largest() -> None:
    session = opened(T0)
    session.epoch = 2**31 - 1
    session.answered(7)
    assert session.next(with_session=True).epoch == 1
