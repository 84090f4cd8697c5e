"""Leader epochs: which epoch ends where (KIP-101, KIP-279)."""

import pytest

from raylog.storage.epochs import LeaderEpochs

ENTRIES = [(2, 10), (3, 20), (5, 30)]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (5, (5, 40)),  # the latest ends with the log
        (3, (3, 30)),
        (4, (3, 30)),  # unknown: the largest one below
        (2, (2, 20)),
        (1, (1, 10)),  # before all that is known
        (6, (-1, -1)),  # not known yet
        (-1, (-1, -1)),
    ],
)
def test_end_of_an_epoch(asked: int, answer: tuple[int, int]) -> None:
    assert LeaderEpochs(ENTRIES).end_offset_for(asked, 40) == answer


def test_nothing_is_known_of_an_empty_log() -> None:
    assert LeaderEpochs().end_offset_for(0, 0) == (-1, -1)
    assert LeaderEpochs().latest == -1


@pytest.mark.parametrize(
    ("epoch", "start", "expected"),
    [
        (5, 35, ENTRIES),  # known already
        (-1, 35, ENTRIES),  # batches from before there were epochs
        (6, 40, [*ENTRIES, (6, 40)]),
        (6, 30, [(2, 10), (3, 20), (6, 30)]),  # epoch 5 wrote nothing that is left
        (4, 40, [(2, 10), (3, 20), (4, 40)]),  # epoch 5 never was
        (6, 20, [(2, 10), (6, 20)]),  # nor did epoch 3
        (6, 21, [(2, 10), (3, 20), (6, 21)]),
        (3, 15, [(2, 10), (3, 15)]),
        (1, 40, [(1, 40)]),
        (0, 40, [(0, 40)]),
    ],
)
def test_assign(epoch: int, start: int, expected: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochs(ENTRIES)
    epochs.assign(epoch, start)
    assert epochs.entries() == expected
    assert epochs.latest == expected[-1][0]


@pytest.mark.parametrize(
    ("end", "expected"),
    [(30, [(2, 10), (3, 20)]), (31, ENTRIES), (10, []), (0, [])],
)
def test_truncation_from_the_end(end: int, expected: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochs(ENTRIES)
    epochs.truncate_from_end(end)
    assert epochs.entries() == expected
    assert epochs.latest == (expected[-1][0] if expected else -1)


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (10, ENTRIES),
        (15, [(2, 15), (3, 20), (5, 30)]),
        (20, [(3, 20), (5, 30)]),
        (99, [(5, 99)]),
    ],
)
def test_truncation_from_the_start(start: int, expected: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochs(ENTRIES)
    epochs.truncate_from_start(start)
    assert epochs.entries() == expected


@pytest.mark.parametrize(("offset", "epoch"), [(9, None), (10, 2), (29, 3), (30, 5), (99, 5)])
def test_epoch_of_a_record(offset: int, epoch: int | None) -> None:
    assert LeaderEpochs(ENTRIES).epoch_for(offset) == epoch
