"""Which partition goes to which process."""

import itertools

from raylog.actors.broker.rules.pool import ReplicaPool, ReplicaSlot
from raylog.actors.common_messages import PartitionKey, TopicId


def key(number: int) -> PartitionKey:
    return TopicId(b"t" * 16), number


def pool_of(*, actors_max: int = 2, spares: int = 1) -> ReplicaPool:
    return ReplicaPool("c", 0, actors_max=actors_max, spares=spares, numbers=itertools.count(5))


def placed(
    pool: ReplicaPool, number: int, *, dedicated: bool = False, internal: bool = False
) -> str:
    return pool.place(key(number), dedicated=dedicated, internal=internal).name


def test_partitions_get_processes_of_their_own_while_there_is_room() -> None:
    pool = pool_of(actors_max=3)
    assert [placed(pool, number) for number in range(3)] == [
        "c/replica/0/5",
        "c/replica/0/6",
        "c/replica/0/7",
    ]


def test_after_that_the_least_loaded_is_shared() -> None:
    pool = pool_of(actors_max=2)
    names = [placed(pool, number) for number in range(5)]
    assert names == ["c/replica/0/5", "c/replica/0/6"] * 2 + ["c/replica/0/5"]


def test_a_running_spare_is_taken_before_one_that_starts() -> None:
    pool = pool_of(actors_max=4)
    first, second = pool.add(), pool.add()
    second.instance = "running"
    assert [placed(pool, 0), placed(pool, 1)] == [second.name, first.name]


def test_internal_topics_share_from_the_start() -> None:
    pool = pool_of(actors_max=4)
    first = placed(pool, 0, internal=True)
    assert [placed(pool, number, internal=True) for number in (1, 2)] == [first, first]
    assert placed(pool, 3) != first


def test_a_dedicated_partition_has_its_process_alone_even_when_the_pool_is_full() -> None:
    pool = pool_of(actors_max=1)
    shared = placed(pool, 0)
    alone = placed(pool, 1, dedicated=True)
    assert alone != shared
    assert placed(pool, 2) == shared
    assert placed(pool, 3, internal=True) == shared
    pool.release(alone, key(1))
    assert not pool.slots[alone].dedicated


def test_a_pool_of_dedicated_processes_still_has_room_for_one_more() -> None:
    pool = pool_of(actors_max=1)
    alone = placed(pool, 0, dedicated=True)
    assert placed(pool, 1) != alone


def test_there_are_as_many_spares_as_wanted() -> None:
    pool = pool_of(spares=2)
    first = pool.missing_spares()
    assert len(first) == 2
    assert pool.missing_spares() == []
    assert placed(pool, 0) == first[0].name
    assert len(pool.missing_spares()) == 1


def test_running_spares_beyond_that_are_let_go() -> None:
    pool = pool_of(actors_max=3, spares=1)
    names = [placed(pool, number) for number in range(3)]
    for name in names:
        pool.slots[name].instance = "running"
    assert pool.surplus() == []
    for number, name in enumerate(names[:2]):
        pool.release(name, key(number))
    assert [slot.name for slot in pool.surplus()] == [names[1]]
    assert sorted(pool.slots) == [names[0], names[2]]


def test_numbers_are_not_used_again() -> None:
    pool = pool_of()
    first = pool.add()
    assert pool.remove(first.name) is first
    assert pool.remove(first.name) is None
    assert pool.add().number == first.number + 1
    pool.release(first.name, key(0))  # of a process that is gone: nothing to do


def test_a_surviving_process_keeps_its_name() -> None:
    pool = pool_of()
    slot = pool.adopt("c/replica/0/2", 2, "i", "address")
    assert slot == ReplicaSlot("c/replica/0/2", 2, "i", "address")
    assert slot.is_ready
    assert placed(pool, 0) == "c/replica/0/2"
