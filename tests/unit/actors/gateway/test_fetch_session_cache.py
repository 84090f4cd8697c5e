"""Which fetch session is evicted for a new one, by Apache Kafka's rules."""

from __future__ import annotations

import itertools

import pytest

from raylog.actors.common_messages import TopicId
from raylog.actors.gateway import fetch_sessions
from raylog.actors.gateway.fetch_sessions import (
    EVICTION_MS,
    ClientFetchSession,
    FetchSessionCache,
)
from raylog.actors.replica.messages import Interest
from raylog.wire.errors import FetchSessionIdNotFound

T = TopicId(b"t" * 16)
OLD = EVICTION_MS + 1


class Cache:
    """A cache of three slots, and the sessions it evicted."""

    def __init__(self, slots: int = 3) -> None:
        self.dropped: list[int] = []
        ids = itertools.count(1)
        self.cache = FetchSessionCache(
            slots, lambda: next(ids), lambda session: self.dropped.append(session.session_id)
        )

    def make(self, size: int, now_ms: float = 0) -> int:
        """A newcomer with `size` partitions; its session id."""
        session = self.cache.fresh(keep=True, by_names=False, size=size, now_ms=now_ms)
        _fill(session, size)
        return session.session_id

    def use(self, session_id: int, now_ms: float, epoch: int = 1, size: int = 0) -> None:
        """Go on with a session, which then has `size` partitions, or as many as before."""
        session = self.cache.resume(session_id, epoch, by_names=False)
        if size:
            session.interests.clear()
            _fill(session, size)
        self.cache.used(session, now_ms)


def _fill(session: ClientFetchSession, size: int) -> None:
    for index in range(size):
        session.interests[(T, index)] = Interest(T, index, 0, 1, -1, -1)


def test_a_session_in_use_keeps_its_slot_for_two_minutes_whoever_comes() -> None:
    cache = Cache()
    kept = [cache.make(1) for _ in range(3)]
    for one in kept:
        cache.use(one, EVICTION_MS)
    assert [cache.make(1_000, EVICTION_MS) for _ in range(100)] == [0] * 100
    assert cache.dropped == []
    for one in kept:
        cache.use(one, EVICTION_MS, epoch=2)


def test_the_session_used_last_before_all_others_goes_after_two_minutes() -> None:
    cache = Cache()
    first, second, third = (cache.make(1) for _ in range(3))
    cache.use(first, 10)
    assert cache.make(1, OLD) > 0
    assert cache.dropped == [second]
    assert cache.make(1, OLD) > 0
    assert cache.dropped == [second, third]
    assert cache.make(1, OLD) == 0
    assert cache.make(1, OLD + 10) > 0
    assert cache.dropped == [second, third, first]


def test_an_old_session_in_use_makes_room_for_a_larger_newcomer_only() -> None:
    cache = Cache()
    sizes = {cache.make(size): size for size in (5, 3, 4)}
    for one in sizes:
        cache.use(one, OLD)
    assert cache.make(3, OLD) == 0
    larger = cache.make(4, OLD)
    assert larger > 0
    assert [sizes[one] for one in cache.dropped] == [3]
    assert cache.make(100, OLD) > 0
    assert cache.make(100, OLD) > 0
    assert [sizes[one] for one in cache.dropped] == [3, 4, 5]
    assert cache.make(100, OLD) == 0


def test_session_size_is_taken_when_the_session_is_used() -> None:
    cache = Cache()
    first, second, third = (cache.make(5) for _ in range(3))
    for one in (first, second, third):
        cache.use(one, OLD)
    cache.use(second, OLD, epoch=2, size=9)
    cache.use(third, OLD, epoch=2, size=2)
    cache.use(third, OLD, epoch=3, size=7)
    assert cache.make(6, OLD) > 0
    assert cache.dropped == [first]
    assert cache.make(6, OLD) == 0
    assert cache.make(8, OLD) > 0
    assert cache.dropped == [first, third]


def test_sizes_that_change_for_ever_are_not_remembered_for_ever() -> None:
    cache = Cache()
    one = cache.make(5)
    for epoch in range(1, 2_000):
        cache.use(one, OLD, epoch=epoch, size=1 + epoch % 2)
    assert len(cache.cache._evictable) < 100  # no limit on what one client may do


def test_a_session_that_lost_its_last_partition_is_no_more() -> None:
    cache = Cache()
    one = cache.make(1)
    session = cache.cache.resume(one, 1, by_names=False)
    session.interests.clear()
    cache.cache.used(session, 10)
    assert session.session_id == 0
    with pytest.raises(FetchSessionIdNotFound):
        cache.cache.resume(one, 2, by_names=False)


def test_without_slots_there_are_no_sessions() -> None:
    assert Cache(slots=0).make(1) == 0


def test_a_session_that_grows_beyond_a_full_fetch_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "SESSION_PARTITIONS_MAX", 10, raising=False)
    cache = Cache()
    growing = cache.make(5)
    cache.use(growing, 1, epoch=1, size=10)
    cache.use(growing, 2, epoch=2, size=11)
    with pytest.raises(FetchSessionIdNotFound):
        cache.use(growing, 3, epoch=3)
    assert len(cache.cache) == 0


def test_all_sessions_together_have_so_many_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_MAX", 20, raising=False)
    cache = Cache(slots=100)
    first, second = cache.make(8), cache.make(8)
    assert cache.make(8) == 0, "served without a session"
    small = cache.make(4)
    cache.use(first, 1, size=9)
    with pytest.raises(FetchSessionIdNotFound):
        cache.use(first, 2, epoch=2)
    assert cache.make(8, OLD) > 0
    assert cache.dropped == [], "the room of the one that grew"
    cache.use(second, OLD)
    assert cache.make(4, OLD) > 0
    assert cache.dropped == [small], "not used for two minutes"


def test_epochs_begin_at_one_again_after_the_last() -> None:
    cache = Cache()
    session_id = cache.make(1)
    session = cache.cache.resume(session_id, 1, by_names=False)
    session.epoch = 2**31 - 1
    cache.use(session_id, 0, epoch=2**31 - 1)
    cache.use(session_id, 0, epoch=1)


def test_a_session_that_was_dropped_while_a_request_went_on_with_it_counts_no_more() -> None:
    cache = Cache(1)
    dropped = cache.cache.resume(cache.make(1), 1, by_names=False)
    kept = cache.make(2, OLD)
    assert cache.dropped == [dropped.session_id]
    dropped.interests.clear()
    cache.cache.used(dropped, OLD)
    assert cache.dropped == [dropped.session_id], "it ends once"
    assert cache.cache._partitions == 2
    cache.use(kept, OLD)


def test_no_two_sessions_have_one_id() -> None:
    ids = iter([1, 1, 1, 2])
    cache = FetchSessionCache(3, lambda: next(ids), lambda _: None)
    made = [cache.fresh(keep=True, by_names=False, size=1, now_ms=0) for _ in range(2)]
    assert [one.session_id for one in made] == [1, 2]
