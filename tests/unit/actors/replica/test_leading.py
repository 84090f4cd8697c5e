"""What a leader does with its followers' fetches and with the controller's answers."""

from __future__ import annotations

import pytest

from raylog.actors.replica.rules.leading import QUIET_MS, Proposal
from raylog.actors.replica.rules.machine import (
    Appended,
    CutOff,
    Effect,
    FailUnsafe,
    Followed,
    FollowerFetched,
    IsrAltered,
    IsrRefused,
    LeadershipChanged,
    MinIsrChanged,
    PartitionMachine,
    Propose,
    ReleaseUpTo,
    StopLeading,
    TimePassed,
    Truncated,
)
from tests.worlds.replica.fake_host import leadership

ME, LEFT, RIGHT = 1, 2, 3
LAG_MS = 1_000
ALL = ((ME, "a"), (LEFT, "a"), (RIGHT, "a"))


def leading(
    end: int = 0,
    *,
    replicas: tuple[int, ...] = (1, 2, 3),
    isr: tuple[int, ...] = (1, 2, 3),
    min_isr: int = 1,
) -> PartitionMachine:
    """Leads in epoch 3, with `end` records from epochs before."""
    machine = PartitionMachine(ME, end, min_isr=min_isr, lag_ms_max=LAG_MS)
    changed = leadership(ME, 3, 7, replicas=replicas, isr=isr)
    machine.handle(LeadershipChanged(changed, end, 0))
    return machine


def fetch(
    machine: PartitionMachine, broker: int, offset: int, now_ms: int = 0, incarnation: str = "a"
) -> list[Effect]:
    return machine.handle(FollowerFetched(broker, incarnation, offset, now_ms))


# ---- who lags ----------------------------------------------------------------------------


def test_lag_counts_from_the_last_append_that_found_the_follower_level() -> None:
    machine = leading()
    for one in (LEFT, RIGHT):
        fetch(machine, one, 0)
    machine.handle(Appended(5, 400))
    fetch(machine, RIGHT, 5, 450)
    fetch(machine, LEFT, 0, 450)
    assert machine.handle(TimePassed(400 + LAG_MS)) == []
    without_left = Proposal(3, 7, ((ME, "a"), (RIGHT, "a")))
    assert machine.handle(TimePassed(401 + LAG_MS)) == [Propose(without_left)]


def test_lagging_follower_is_removed_by_the_clock_not_by_another_fetch() -> None:
    machine = leading(5)
    late_ms = LAG_MS + 1
    assert fetch(machine, LEFT, 5, late_ms) == []
    assert machine.handle(TimePassed(late_ms)) == [Propose(Proposal(3, 7, ALL[:2]))]


def test_one_proposal_adds_the_level_and_removes_the_lagging_follower() -> None:
    machine = leading(5, isr=(ME, LEFT))
    late_ms = LAG_MS + 1
    both = Propose(Proposal(3, 7, ((ME, "a"), (RIGHT, "a"))))
    assert fetch(machine, RIGHT, 5, late_ms) == [both]
    assert machine.high_watermark == 0, "who is to leave counts until that is confirmed"


def test_a_replica_that_is_new_within_an_epoch_lags_until_it_is_level() -> None:
    machine = leading(5, replicas=(ME, LEFT), isr=(ME, LEFT))
    fetch(machine, LEFT, 5)
    now_ms = 100 * LAG_MS
    machine.handle(Appended(6, now_ms))
    machine.handle(LeadershipChanged(leadership(ME, 3, 8, isr=(ME, LEFT)), 6, now_ms))
    assert fetch(machine, RIGHT, 5, now_ms + 1) == [], "there is more than it has"
    assert fetch(machine, RIGHT, 6, now_ms + 1) == [Propose(Proposal(3, 8, ALL))]


def test_a_member_whose_log_was_opened_anew_has_its_time_to_catch_up() -> None:
    machine = leading(5)
    now_ms = 100 * LAG_MS
    fetch(machine, LEFT, 5, now_ms)
    changed = leadership(ME, 3, 8, incarnations={RIGHT: "b"})
    machine.handle(LeadershipChanged(changed, 5, now_ms))
    assert machine.handle(TimePassed(now_ms + LAG_MS)) == []
    assert machine.handle(TimePassed(now_ms + LAG_MS + 1)) == [Propose(Proposal(3, 8, ALL[:2]))]


def test_newer_metadata_does_not_forget_how_far_followers_are() -> None:
    machine = leading(5)
    fetch(machine, LEFT, 5)
    machine.handle(LeadershipChanged(leadership(ME, 3, 8), 5, 0))
    assert fetch(machine, RIGHT, 5) == [ReleaseUpTo(5)]


def test_the_newest_fetch_of_an_early_opening_is_the_one_that_counts() -> None:
    machine = leading(5)
    fetch(machine, LEFT, 5)
    for offset in (1, 3):
        assert fetch(machine, RIGHT, offset, incarnation="b") == []
    changed = leadership(ME, 3, 8, incarnations={RIGHT: "b"})
    assert machine.handle(LeadershipChanged(changed, 5, 0)) == [ReleaseUpTo(3)]


def test_an_opening_that_came_early_was_level_when_it_fetched() -> None:
    machine = leading(5)
    now_ms = 100 * LAG_MS
    fetch(machine, RIGHT, 5, now_ms, incarnation="b")
    machine.handle(Appended(6, now_ms))
    fetch(machine, LEFT, 6, now_ms)
    changed = leadership(ME, 3, 8, incarnations={RIGHT: "b"})
    machine.handle(LeadershipChanged(changed, 6, now_ms))
    assert machine.handle(TimePassed(now_ms + LAG_MS)) == []
    assert machine.handle(TimePassed(now_ms + LAG_MS + 1)) == [Propose(Proposal(3, 8, ALL[:2]))]


def test_replica_removed_and_added_again_starts_without_progress() -> None:
    machine = leading(5)
    fetch(machine, RIGHT, 5, incarnation="b")
    changed = leadership(ME, 3, 8, incarnations={RIGHT: "b"})
    machine.handle(LeadershipChanged(changed, 5, 0))
    without = leadership(ME, 3, 9, replicas=(ME, LEFT), isr=(ME, LEFT))
    machine.handle(LeadershipChanged(without, 5, 0))
    again = leadership(ME, 3, 10, isr=(ME, LEFT), incarnations={RIGHT: "b"})
    machine.handle(LeadershipChanged(again, 5, 0))
    assert machine.handle(TimePassed(0)) == []


def test_another_opening_than_the_one_that_came_early_begins_with_nothing() -> None:
    machine = leading(5)
    fetch(machine, LEFT, 5)
    fetch(machine, RIGHT, 5, incarnation="b")
    changed = leadership(ME, 3, 8, incarnations={RIGHT: "c"})
    assert machine.handle(LeadershipChanged(changed, 5, 0)) == []
    assert machine.high_watermark == 0


def test_a_member_that_is_no_replica_holds_the_high_watermark() -> None:
    """Nobody knows what it has, and the controller may make it leader."""
    machine = leading(5, replicas=(ME, LEFT), isr=(ME, LEFT, RIGHT))
    assert fetch(machine, LEFT, 5) == []
    without = leadership(ME, 3, 8, replicas=(ME, LEFT), isr=(ME, LEFT))
    assert machine.handle(LeadershipChanged(without, 5, 0)) == [ReleaseUpTo(5)]


def test_a_replica_that_is_taken_away_is_neither_waited_for_nor_proposed() -> None:
    machine = leading(5, isr=(ME, LEFT))
    changed = leadership(ME, 3, 8, replicas=(ME, LEFT), isr=(ME, LEFT))
    machine.handle(LeadershipChanged(changed, 5, 0))
    assert fetch(machine, LEFT, 5) == [ReleaseUpTo(5)]
    assert machine.is_settled
    assert fetch(machine, RIGHT, 5) == []
    assert machine.handle(TimePassed(0)) == []


@pytest.mark.parametrize(
    ("ends", "isr", "is_settled"),
    [
        ({LEFT: 5, RIGHT: 5}, (1, 2, 3), True),
        ({LEFT: 5, RIGHT: 4}, (1, 2, 3), False),
        ({LEFT: 5}, (1, 2, 3), False),
        ({RIGHT: 5}, (1, 2, 3), False),
        ({LEFT: 5, RIGHT: 4}, (1, 2), False),
    ],
)
def test_a_leader_rests_when_all_are_in_sync_and_level(
    ends: dict[int, int], isr: tuple[int, ...], is_settled: bool
) -> None:
    machine = leading(5, isr=isr)
    for one, end in ends.items():
        fetch(machine, one, end)
    assert machine.is_settled == is_settled


def test_leader_is_not_settled_while_a_level_follower_is_refused() -> None:
    machine, asked = asking()
    machine.handle(IsrRefused(asked, 0))
    assert not machine.is_settled


# ---- answers of the controller -----------------------------------------------------------


def asking() -> tuple[PartitionMachine, Proposal]:
    """A leader, alone in sync, that has asked to take LEFT in."""
    machine = leading(5, replicas=(ME, LEFT), isr=(ME,))
    asked = Proposal(3, 7, ALL[:2])
    assert fetch(machine, LEFT, 5) == [Propose(asked)]
    return machine, asked


def test_refused_isr_addition_no_longer_holds_the_high_watermark() -> None:
    machine, asked = asking()
    assert machine.handle(Appended(6, 0)) == []
    assert machine.handle(IsrRefused(asked, 0)) == [ReleaseUpTo(6)]
    assert machine.handle(IsrRefused(asked, QUIET_MS)) == [], "it is not under way any more"
    assert fetch(machine, LEFT, 6, QUIET_MS) == [Propose(asked)], "no new pause"


def test_a_newer_state_counts_even_as_the_answer_to_an_older_proposal() -> None:
    machine, asked = asking()
    changed = leadership(ME, 3, 8, replicas=(ME, LEFT), isr=(ME,))
    machine.handle(LeadershipChanged(changed, 5, 0))
    newer = Proposal(3, 8, asked.isr)
    assert machine.handle(TimePassed(0)) == [Propose(newer)]
    assert machine.handle(IsrAltered(asked, 3, 9, (ME, LEFT))) == []
    assert machine.is_settled, "nothing is under way"
    machine.handle(Appended(6, 0))
    assert machine.high_watermark == 5


def test_an_older_state_counts_for_nothing_even_as_the_answer_to_what_is_under_way() -> None:
    machine, asked = asking()
    machine.handle(Appended(6, 0))
    assert machine.handle(IsrAltered(asked, 3, 6, (ME,))) == []
    assert machine.high_watermark == 5, "who is to join counts on"
    assert machine.handle(IsrAltered(asked, 3, 7, (ME,))) == [ReleaseUpTo(6)], "it was not taken"


def test_writers_are_notified_when_an_answer_leaves_too_few_in_sync() -> None:
    machine = leading(5, min_isr=3)
    fetch(machine, LEFT, 5, LAG_MS)
    gone = Proposal(3, 7, ALL[:2])
    assert machine.handle(TimePassed(LAG_MS + 1)) == [Propose(gone)]
    assert machine.handle(IsrAltered(gone, 3, 8, (ME, LEFT))) == [FailUnsafe()]
    assert machine.high_watermark == 0


@pytest.mark.parametrize(
    ("min_isr", "expected"), [(2, []), (3, [FailUnsafe()]), (9, [FailUnsafe()])]
)
def test_writers_are_notified_when_more_are_demanded_than_are_in_sync(
    min_isr: int, expected: list[Effect]
) -> None:
    machine = leading(5, isr=(ME, LEFT))
    assert machine.handle(MinIsrChanged(min_isr)) == expected


def test_pending_isr_addition_does_not_count_for_min_isr() -> None:
    machine = leading(5, isr=(ME,), min_isr=2)
    asked = Proposal(3, 7, ALL[:2])
    assert fetch(machine, LEFT, 5) == [Propose(asked)]
    assert machine.high_watermark == 0
    assert machine.handle(IsrAltered(asked, 3, 8, (ME, LEFT))) == [ReleaseUpTo(5)]


def test_cut_off_leader_with_a_pending_isr_addition_stops_leading() -> None:
    machine, asked = asking()
    assert machine.handle(CutOff()) == [StopLeading()]
    machine, asked = asking()
    machine.handle(IsrRefused(asked, 0))
    assert machine.handle(CutOff()) == []


# ---- what is taken from metadata ---------------------------------------------------------


def test_a_replica_knows_the_opening_of_its_own_log_from_the_metadata() -> None:
    machine = PartitionMachine(ME, 0)
    machine.handle(LeadershipChanged(leadership(LEFT, 3, 1, incarnations={ME: "b"}), 0, 0))
    assert machine.incarnation == "b"
    machine.handle(LeadershipChanged(leadership(LEFT, 3, 2, incarnations={ME: "c"}), 0, 0))
    assert machine.incarnation == "c", "within one leader epoch, too"
    machine.handle(LeadershipChanged(leadership(LEFT, 2, 9, incarnations={ME: "d"}), 0, 0))
    assert machine.incarnation == "c"


def test_a_cut_above_the_high_watermark_leaves_that_alone() -> None:
    machine = PartitionMachine(ME, 0)
    machine.handle(LeadershipChanged(leadership(LEFT, 3), 0, 0))
    machine.handle(Followed(5, 3))
    machine.handle(Truncated(4))
    assert (machine.log_end_offset, machine.high_watermark) == (4, 3)
    assert machine.handle(Followed(4, 9)) == [ReleaseUpTo(4)]
