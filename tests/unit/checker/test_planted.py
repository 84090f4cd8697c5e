"""Every kind of anomaly, planted in random histories, is found; clean ones stay clean."""

from itertools import count, islice, pairwise

import pytest

from tests.checker.anomalies import Anomaly, Kind, Options
from tests.checker.check import check
from tests.checker.history import History
from tests.checker.model import Size, clean_history
from tests.checker.operations import Operation
from tests.checker.plants import CONSEQUENCES, PLANTERS, Planted, plant

HISTORIES = 25
CLEAN = 320
SEEDS_MAX = 4 * HISTORIES
STRICT = Options(write_isolation=True)
INTERLEAVING = {Kind.G0, Kind.G1C_WITH_WRITES}


def planted_histories(kind: Kind, size: Size) -> list[tuple[int, Planted, list[Operation]]]:
    """So many histories with the anomaly; seeds without room for it are passed over."""
    found = (
        (seed, planted, operations)
        for seed in range(SEEDS_MAX)
        if (planted := plant(kind, operations := clean_history(seed, size), seed)) is not None
    )
    histories = list(islice(found, HISTORIES))
    assert len(histories) == HISTORIES, f"only {len(histories)} of {SEEDS_MAX} had room"
    return histories


def names(anomaly: Anomaly, planted: Planted) -> bool:
    return (
        (planted.partition is None or anomaly.partition == planted.partition)
        and set(planted.values) <= set(anomaly.values)
        and set(planted.transactions) <= set(anomaly.transactions)
    )


@pytest.mark.parametrize("kind", Kind)
def test_planted_anomaly_is_named_in_every_history(kind: Kind) -> None:
    for seed, planted, operations in planted_histories(kind, Size(isolated=True)):
        verdict = check(History.of(operations), STRICT)
        found = verdict.of(kind)
        assert any(names(one, planted) for one in found), (seed, planted, found[:3])
        assert found[0].operations, "the first has the operations that prove it"
        others = {one.kind for one in verdict.anomalies} - {kind}
        assert others <= CONSEQUENCES.get(kind, frozenset()), (seed, planted, others)


@pytest.mark.parametrize("kind", sorted(set(Kind) - INTERLEAVING - {Kind.UNSEEN}))
def test_planted_anomaly_is_named_among_interleaved_transactions(kind: Kind) -> None:
    for seed, planted, operations in planted_histories(kind, Size()):
        verdict = check(History.of(operations))
        assert not verdict.valid, (seed, planted)
        assert any(names(one, planted) for one in verdict.of(kind)), (seed, planted)


def test_every_kind_can_be_planted() -> None:
    assert set(PLANTERS) == set(Kind)


@pytest.mark.parametrize("isolated", [False, True])
def test_clean_histories_are_clean(isolated: bool) -> None:
    options = Options(write_isolation=isolated)
    for seed in islice(count(10_000), CLEAN // 2):
        operations = clean_history(seed, Size(isolated=isolated))
        verdict = check(History.of(operations), options)
        assert verdict.valid, (seed, verdict.anomalies[:3])


def test_the_model_does_what_makes_checking_hard() -> None:
    """Clean histories have unknown outcomes, aborts, seeks, rebalances, gaps, several readers."""
    histories = [History.of(clean_history(seed)) for seed in range(20)]
    outcomes = {send.outcome for history in histories for send in history.sends}
    ends = {(end.action, end.outcome) for history in histories for end in history.ends}
    reads = {
        type(one).__name__
        for history in histories
        for reads in history.reads.values()
        for one in reads
    }
    assert len(outcomes) == 3
    assert len(ends) == 6
    assert reads == {"Poll", "Assign", "Subscribe", "Rebalance", "Seek"}
    assert any(history.compacted for history in histories)
    assert any(not history.finals for history in histories)
    assert {poll.read_committed for history in histories for poll in history.polls} == {True, False}
    assert any(
        second > first + 1
        for history in histories
        for poll in history.polls
        for _, offsets, _ in poll.batches
        for first, second in pairwise(offsets)
    )
    tolerated = [check(history).tolerated for history in histories]
    assert any(one.kind is Kind.G0 for found in tolerated for one in found)


def test_same_seed_gives_the_same_history() -> None:
    assert clean_history(7) == clean_history(7)
    assert clean_history(7) != clean_history(8)
