"""The partition replica's decisions: leadership by epoch, the high watermark, the ISR."""

from __future__ import annotations

import pytest

from raylog.actors.config import BrokerSettings, settings_of
from raylog.actors.replica.rules.config import ReplicationSettings
from raylog.actors.replica.rules.leading import QUIET_MS, Proposal
from raylog.actors.replica.rules.machine import (
    Appended,
    Effect,
    FailUnsafe,
    Follow,
    Followed,
    FollowerFetched,
    IsrAltered,
    IsrRefused,
    LeadershipChanged,
    MinIsrChanged,
    PartitionMachine,
    Propose,
    ReleaseUpTo,
    StartLeading,
    StopFollowing,
    StopLeading,
    TimePassed,
    Truncated,
)
from raylog.wire.errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
)
from tests.worlds.replica.fake_host import leadership

ME, LEFT, RIGHT = 1, 2, 3
LAG_MS = 1_000
WITHOUT_RIGHT = ((ME, "a"), (LEFT, "a"))


def alone(epoch: int, partition_epoch: int = 0) -> LeadershipChanged:
    changed = leadership(ME, epoch, partition_epoch, replicas=(ME,), isr=(ME,))
    return LeadershipChanged(changed, 0, 0)


def leading(
    end: int = 0, isr: tuple[int, ...] = (1, 2, 3), *, min_isr: int = 1, epoch: int = 3
) -> PartitionMachine:
    """Of three replicas, with `end` records from epochs before."""
    machine = PartitionMachine(ME, end, min_isr=min_isr, lag_ms_max=LAG_MS)
    effects = machine.handle(LeadershipChanged(leadership(ME, epoch, 7, isr=isr), end, 0))
    assert effects[0] == StartLeading(epoch, end)
    return machine


def following(end: int = 0) -> PartitionMachine:
    machine = PartitionMachine(ME, end)
    machine.handle(LeadershipChanged(leadership(LEFT, 3), end, 0))
    return machine


def fetch(
    machine: PartitionMachine, broker: int, offset: int, now_ms: int = 0, incarnation: str = "a"
) -> list[Effect]:
    return machine.handle(FollowerFetched(broker, incarnation, offset, now_ms))


# ---- leadership --------------------------------------------------------------------------


def test_a_sole_replica_starts_its_epoch_at_its_log_end_and_releases_all() -> None:
    machine = PartitionMachine(ME, 10)
    changed = leadership(ME, 0, replicas=(ME,), isr=(ME,))
    assert machine.handle(LeadershipChanged(changed, 10, 0)) == [
        StartLeading(0, 10),
        ReleaseUpTo(10),
    ]
    assert machine.is_leader
    assert not machine.is_follower


def test_the_leader_of_an_empty_log_has_nothing_to_release() -> None:
    assert PartitionMachine(ME, 0).handle(alone(0)) == [StartLeading(0, 0)]


def test_a_new_leader_knows_nothing_of_its_followers() -> None:
    machine = PartitionMachine(ME, 10, high_watermark=4)
    effects = machine.handle(LeadershipChanged(leadership(ME, 0), 10, 0))
    assert effects == [StartLeading(0, 10)]
    assert machine.high_watermark == 4


def test_an_append_moves_the_high_watermark_of_a_sole_replica() -> None:
    machine = PartitionMachine(ME, 0)
    machine.handle(alone(0))
    assert machine.handle(Appended(5, 0)) == [ReleaseUpTo(5)]
    assert (machine.log_end_offset, machine.high_watermark) == (5, 5)


@pytest.mark.parametrize("epochs", [(3, 7), (3, 6), (2, 9)])
def test_lower_or_equal_epochs_change_nothing(epochs: tuple[int, int]) -> None:
    machine = leading()
    assert machine.handle(LeadershipChanged(leadership(LEFT, *epochs), 0, 0)) == []
    assert machine.is_leader


def test_metadata_of_an_older_partition_epoch_takes_nobodys_opening_back() -> None:
    """It comes late: who fetches is known by the opening that the newer one names."""
    machine = leading(5)
    newer = leadership(ME, 3, 9, incarnations={LEFT: "b"})
    machine.handle(LeadershipChanged(newer, 5, 0))
    machine.handle(LeadershipChanged(leadership(ME, 3, 8), 5, 0))
    fetch(machine, RIGHT, 5)
    assert fetch(machine, LEFT, 5) == [], "an opening of its log that is over"
    assert fetch(machine, LEFT, 5, incarnation="b") == [ReleaseUpTo(5)]


def test_a_leader_begins_where_its_log_ends_whatever_it_knew_of_that_as_a_follower() -> None:
    machine = following(3)
    effects = machine.handle(LeadershipChanged(leadership(ME, 4, isr=(ME,)), 5, 0))
    assert effects == [StopFollowing(), StartLeading(4, 5), ReleaseUpTo(5)]
    assert machine.is_before_epoch_start is False


def test_losing_leadership_fails_the_waiting_and_follows() -> None:
    machine = leading()
    event = LeadershipChanged(leadership(LEFT, 4, 8), 0, 0)
    assert machine.handle(event) == [StopLeading(), Follow(LEFT, 4)]
    with pytest.raises(NotLeaderOrFollower, match="2 does"):
        machine.require_leader()


def test_leading_again_in_a_higher_epoch_fails_the_waiting_and_starts_the_epoch() -> None:
    machine = leading()
    machine.handle(Appended(7, 0))
    assert machine.handle(LeadershipChanged(leadership(ME, 4, 8), 7, 0)) == [
        StopLeading(),
        StartLeading(4, 7),
    ]


def test_a_follower_that_is_to_lead_stops_following_first() -> None:
    machine = following(5)
    machine.handle(Followed(5, 4))
    event = LeadershipChanged(leadership(ME, 4, isr=(ME, RIGHT)), 5, 0)
    assert machine.handle(event) == [StopFollowing(), StartLeading(4, 5)]
    assert machine.high_watermark == 4
    assert machine.is_before_epoch_start


def test_nobody_is_followed_where_nobody_leads() -> None:
    machine = following()
    assert machine.handle(LeadershipChanged(leadership(-1, 4), 0, 0)) == [StopFollowing()]
    assert not machine.is_follower


def test_a_follower_minds_only_who_leads() -> None:
    machine = following()
    assert machine.handle(LeadershipChanged(leadership(LEFT, 3, 1, isr=(LEFT,)), 0, 0)) == []
    assert machine.is_follower


@pytest.mark.parametrize(("asked", "refusal"), [(2, FencedLeaderEpoch), (4, UnknownLeaderEpoch)])
def test_a_client_with_another_epoch_is_told_so(asked: int, refusal: type[Exception]) -> None:
    with pytest.raises(refusal, match="it is 3 here"):
        leading().require_leader(asked)


@pytest.mark.parametrize("asked", [-1, 3])
def test_a_client_with_the_same_or_no_epoch_is_served(asked: int) -> None:
    leading().require_leader(asked)


def test_a_log_that_shrinks_is_our_bug() -> None:
    machine = leading(5)
    with pytest.raises(AssertionError):
        machine.handle(Appended(4, 0))


# ---- the high watermark ------------------------------------------------------------------


def test_the_high_watermark_is_what_all_in_sync_hold() -> None:
    machine = leading()
    assert machine.handle(Appended(5, 0)) == []
    assert fetch(machine, LEFT, 5) == []
    assert fetch(machine, RIGHT, 3) == [ReleaseUpTo(3)]
    assert fetch(machine, RIGHT, 5) == [ReleaseUpTo(5)]
    assert fetch(machine, RIGHT, 5) == []


def test_a_follower_that_goes_back_never_pulls_it_back() -> None:
    machine = leading(5)
    fetch(machine, LEFT, 5)
    assert fetch(machine, RIGHT, 5) == [ReleaseUpTo(5)]
    assert fetch(machine, RIGHT, 2) == []
    assert machine.high_watermark == 5


def test_the_leader_itself_counts() -> None:
    machine = leading(5, isr=(ME, LEFT))
    assert fetch(machine, LEFT, 9) == [ReleaseUpTo(5)]


def test_high_watermark_ignores_followers_out_of_sync() -> None:
    machine = leading(5, isr=(ME, LEFT))
    machine.handle(TimePassed(0))
    assert fetch(machine, LEFT, 5) == [ReleaseUpTo(5)]


def test_high_watermark_stands_still_below_min_isr() -> None:
    machine = leading(5, isr=(ME,), min_isr=2)
    assert machine.high_watermark == 0
    with pytest.raises(NotEnoughReplicas, match=r"min\.insync\.replicas is 2"):
        machine.require_enough_replicas()
    assert machine.handle(MinIsrChanged(1)) == [ReleaseUpTo(5)]
    machine.require_enough_replicas()


def test_fewer_replicas_than_demanded_are_enough_when_all_are_in_sync() -> None:
    machine = PartitionMachine(ME, 5, min_isr=2)
    assert machine.handle(LeadershipChanged(alone(0).leadership, 5, 0))[-1] == ReleaseUpTo(5)
    machine.require_enough_replicas()


# ---- incarnations ------------------------------------------------------------------------


def test_a_fetch_of_another_opening_of_the_log_does_not_count() -> None:
    machine = leading(5)
    fetch(machine, LEFT, 5)
    assert fetch(machine, RIGHT, 5, incarnation="b") == []
    assert machine.high_watermark == 0


def test_fetch_of_a_new_incarnation_counts_once_the_metadata_names_it() -> None:
    machine = leading(5)
    fetch(machine, LEFT, 5)
    fetch(machine, RIGHT, 5, incarnation="b")
    changed = leadership(ME, 3, 8, incarnations={RIGHT: "b"})
    assert machine.handle(LeadershipChanged(changed, 5, 0)) == [ReleaseUpTo(5)]


def test_progress_of_an_older_incarnation_is_forgotten() -> None:
    machine = leading(5)
    fetch(machine, RIGHT, 5)
    changed = leadership(ME, 3, 8, incarnations={RIGHT: "b"})
    assert machine.handle(LeadershipChanged(changed, 5, 0)) == []
    assert fetch(machine, LEFT, 5) == []
    assert machine.high_watermark == 0


# ---- who is in sync ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log_starts", "is_done"),
    [
        ({LEFT: 5, RIGHT: 6}, True),
        ({LEFT: 5, RIGHT: 4}, False),
        ({LEFT: 5}, False),
        ({LEFT: 5, RIGHT: 5, 4: 4}, False),
    ],
)
def test_records_are_deleted_once_all_who_may_lead_have_reported_so(
    log_starts: dict[int, int], is_done: bool
) -> None:
    assert leading(9).have_deleted_to(5, log_starts) == is_done
    assert leading(9, isr=(ME,)).have_deleted_to(5, {ME: 0})


def joining() -> tuple[PartitionMachine, Proposal]:
    """A leader that has asked to take RIGHT in; all records are released."""
    machine = leading(5, isr=(ME, LEFT))
    fetch(machine, LEFT, 5)
    wanted = Proposal(3, 7, (*WITHOUT_RIGHT, (RIGHT, "a")))
    assert fetch(machine, RIGHT, 5) == [Propose(wanted)]
    return machine, wanted


def test_a_follower_joins_at_the_high_watermark_and_the_epochs_start() -> None:
    machine = leading(5, isr=(ME, LEFT))
    assert fetch(machine, RIGHT, 4) == []
    machine.handle(Appended(8, 0))
    assert fetch(machine, LEFT, 7) == [ReleaseUpTo(7)]
    assert fetch(machine, RIGHT, 6) == []
    assert fetch(machine, RIGHT, 7) == [Propose(Proposal(3, 7, (*WITHOUT_RIGHT, (RIGHT, "a"))))]


def test_pending_isr_addition_holds_the_high_watermark_at_once() -> None:
    machine, _ = joining()
    machine.handle(Appended(6, 0))
    assert fetch(machine, LEFT, 6) == []
    assert fetch(machine, RIGHT, 6) == [ReleaseUpTo(6)]


def test_one_proposal_is_under_way_at_a_time() -> None:
    machine, _ = joining()
    assert fetch(machine, RIGHT, 5) == []
    assert machine.handle(TimePassed(10 * LAG_MS)) == []


def test_the_controllers_answer_settles_it() -> None:
    machine, asked = joining()
    settled = [machine.is_settled]
    assert machine.handle(IsrAltered(asked, 3, 8, (1, 2, 3))) == []
    settled.append(machine.is_settled)
    assert machine.handle(LeadershipChanged(leadership(ME, 3, 8), 5, 0)) == []
    settled.append(machine.is_settled)
    assert settled == [False, True, True]


def test_a_refused_proposal_is_made_again_after_a_while() -> None:
    machine, asked = joining()
    machine.handle(IsrRefused(asked, 10))
    machine.handle(Appended(6, 11))
    assert fetch(machine, LEFT, 6, 12) == [ReleaseUpTo(6)]
    assert machine.handle(TimePassed(10 + QUIET_MS - 1)) == []
    fetch(machine, RIGHT, 6, 20)
    assert machine.handle(TimePassed(10 + QUIET_MS)) == [Propose(asked)]


def test_refused_follower_does_not_block_another_isr_addition() -> None:
    """A follower may be level and yet not live, as one whose broker has just been fenced."""
    machine = leading(5, isr=(ME,))
    left = Proposal(3, 7, WITHOUT_RIGHT)
    assert fetch(machine, LEFT, 5) == [Propose(left)]
    assert fetch(machine, RIGHT, 5) == [], "one proposal is under way"
    machine.handle(IsrRefused(left, 0))
    right = Proposal(3, 7, ((ME, "a"), (RIGHT, "a")))
    assert machine.handle(TimePassed(QUIET_MS)) == [Propose(right)]
    machine.handle(IsrAltered(right, 3, 8, (ME, RIGHT)))
    again = Proposal(3, 8, ((ME, "a"), (RIGHT, "a"), (LEFT, "a")))
    assert machine.handle(TimePassed(QUIET_MS)) == [Propose(again)]
    machine.handle(IsrAltered(again, 3, 9, (ME, RIGHT, LEFT)))
    assert machine.is_settled


def test_level_followers_are_proposed_in_turn_after_each_refusal() -> None:
    machine = leading(5, isr=(ME,))
    left, right = (Proposal(3, 7, ((ME, "a"), (one, "a"))) for one in (LEFT, RIGHT))
    assert fetch(machine, LEFT, 5) == [Propose(left)]
    fetch(machine, RIGHT, 5)
    now_ms = 0
    for proposal, following in ((left, right), (right, left), (left, right)):
        machine.handle(IsrRefused(proposal, now_ms))
        now_ms += QUIET_MS
        assert machine.handle(TimePassed(now_ms)) == [Propose(following)]


def test_refused_addition_does_not_keep_a_lagging_follower_in_the_isr() -> None:
    machine = leading(0, isr=(ME, LEFT))
    fetch(machine, LEFT, 0)
    machine.handle(Appended(5, 0))
    wanted = Proposal(3, 7, (*WITHOUT_RIGHT, (RIGHT, "a")))
    assert fetch(machine, RIGHT, 5) == [Propose(wanted)]
    machine.handle(IsrRefused(wanted, 0))
    late_ms = LAG_MS + 1
    assert machine.handle(TimePassed(late_ms)) == [Propose(Proposal(3, 7, ((ME, "a"),)))]


def test_an_answer_that_newer_metadata_overtook_changes_nothing() -> None:
    machine, asked = joining()
    changed = leadership(ME, 3, 9, isr=(ME, LEFT))
    machine.handle(LeadershipChanged(changed, 5, 0))
    again = machine.handle(TimePassed(0))
    assert again == [Propose(Proposal(3, 9, asked.isr))]
    assert machine.handle(IsrAltered(asked, 3, 9, (ME, LEFT))) == []
    machine.handle(IsrRefused(asked, 0))
    machine.handle(Appended(6, 0))
    assert fetch(machine, LEFT, 6) == [], "who is to join still counts"


def test_metadata_that_says_what_an_answer_has_said_leaves_the_next_proposal_alone() -> None:
    """The controller may have taken that already: who is to join counts until the answer."""
    machine = leading(5, isr=(ME,))
    left = Proposal(3, 7, WITHOUT_RIGHT)
    assert fetch(machine, LEFT, 5) == [Propose(left)]
    machine.handle(IsrAltered(left, 3, 8, (ME, LEFT)))
    both = Proposal(3, 8, (*WITHOUT_RIGHT, (RIGHT, "a")))
    assert fetch(machine, RIGHT, 5) == [Propose(both)]
    machine.handle(LeadershipChanged(leadership(ME, 3, 8, isr=(ME, LEFT)), 5, 0))
    assert machine.handle(TimePassed(0)) == [], "it is still under way"
    machine.handle(Appended(6, 0))
    assert fetch(machine, LEFT, 6) == []
    assert fetch(machine, RIGHT, 6) == [ReleaseUpTo(6)]


def test_a_replica_that_is_added_within_an_epoch_may_join() -> None:
    machine = leading(5)
    added = leadership(ME, 3, 8, replicas=(1, 2, 3, 4), isr=(1, 2, 3))
    machine.handle(LeadershipChanged(added, 5, 0))
    members = ((ME, "a"), (LEFT, "a"), (RIGHT, "a"), (4, "a"))
    assert fetch(machine, 4, 5) == [Propose(Proposal(3, 8, members))]


def test_follower_that_rejoined_the_isr_is_no_longer_treated_as_refused() -> None:
    machine, asked = joining()
    machine.handle(IsrRefused(asked, 0))
    assert machine.handle(TimePassed(QUIET_MS)) == [Propose(asked)]
    machine.handle(IsrAltered(asked, 3, 8, (1, 2, 3)))
    machine.handle(LeadershipChanged(leadership(ME, 3, 9, isr=(ME,)), 5, QUIET_MS))
    both = Proposal(3, 9, (*WITHOUT_RIGHT, (RIGHT, "a")))
    assert fetch(machine, LEFT, 5, QUIET_MS) == [Propose(both)]


def test_an_answer_to_an_older_leadership_changes_nothing() -> None:
    machine, asked = joining()
    machine.handle(LeadershipChanged(leadership(ME, 4, 8, isr=(ME, LEFT)), 5, 0))
    assert machine.handle(IsrAltered(asked, 3, 9, (1, 2, 3))) == []
    assert fetch(machine, LEFT, 5) == []
    assert fetch(machine, RIGHT, 5) == [Propose(Proposal(4, 8, asked.isr))]


def test_lagging_follower_counts_until_its_removal_is_confirmed() -> None:
    machine = leading(0)
    fetch(machine, RIGHT, 0)
    fetch(machine, LEFT, 0)
    machine.handle(Appended(5, 100))
    fetch(machine, LEFT, 5, 100)
    assert machine.handle(TimePassed(100 + LAG_MS)) == []
    wanted = Proposal(3, 7, WITHOUT_RIGHT)
    assert machine.handle(TimePassed(101 + LAG_MS)) == [Propose(wanted)]
    assert machine.high_watermark == 0
    assert machine.handle(IsrAltered(wanted, 3, 8, (ME, LEFT))) == [ReleaseUpTo(5)]


def test_follower_that_never_fetched_lags_from_the_start_of_the_epoch() -> None:
    machine = leading(5)
    fetch(machine, LEFT, 5, LAG_MS)
    assert machine.handle(TimePassed(LAG_MS)) == []
    assert machine.handle(TimePassed(LAG_MS + 1)) == [Propose(Proposal(3, 7, WITHOUT_RIGHT))]


def test_follower_that_reaches_the_previous_log_end_does_not_lag() -> None:
    machine = leading(0)
    end = 0
    for now_ms in range(0, 10 * LAG_MS, LAG_MS // 2):
        fetch(machine, LEFT, end, now_ms)
        fetch(machine, RIGHT, end, now_ms)
        end += 10
        machine.handle(Appended(end, now_ms))
        assert machine.handle(TimePassed(now_ms)) == []


@pytest.mark.parametrize("short", [0, 1])
def test_follower_was_level_at_the_fetch_whose_log_end_it_has_now_reached(short: int) -> None:
    """While others write, a follower's log never ends where the leader's does."""
    machine = leading(0)
    for turn in range(5):
        now_ms, end = turn * LAG_MS // 4, 10 * (turn + 1)
        machine.handle(Appended(end, now_ms))
        fetch(machine, RIGHT, end, now_ms)
        fetch(machine, LEFT, max(10 * turn - short, 0), now_ms)
    level_ms = 0 if short else 3 * LAG_MS // 4
    assert machine.handle(TimePassed(level_ms + LAG_MS)) == []
    without_left = Proposal(3, 7, ((ME, "a"), (RIGHT, "a")))
    assert machine.handle(TimePassed(level_ms + LAG_MS + 1)) == [Propose(without_left)]


def test_removed_follower_rejoins_only_when_level_with_the_log_end() -> None:
    machine = leading(5, isr=(ME, LEFT), min_isr=2)
    fetch(machine, LEFT, 5, 0)
    machine.handle(Appended(6, 10))
    gone = Proposal(3, 7, ((ME, "a"),))
    late_ms = 10 + LAG_MS + 1
    assert fetch(machine, LEFT, 5, 20) == []
    assert machine.handle(TimePassed(late_ms)) == [Propose(gone)]
    machine.handle(IsrAltered(gone, 3, 8, (ME,)))
    assert fetch(machine, LEFT, 5, late_ms) == []
    assert machine.handle(TimePassed(late_ms + 1)) == []
    assert fetch(machine, LEFT, 6, late_ms + 2) == [
        Propose(Proposal(3, 8, ((ME, "a"), (LEFT, "a"))))
    ]


def test_follower_out_of_isr_at_epoch_start_rejoins_only_when_level() -> None:
    began_ms = 100 * LAG_MS
    machine = PartitionMachine(ME, 5, high_watermark=5, lag_ms_max=LAG_MS)
    changed = leadership(ME, 3, 7, isr=(ME, RIGHT))
    machine.handle(LeadershipChanged(changed, 5, began_ms))
    machine.handle(Appended(6, began_ms))
    assert fetch(machine, LEFT, 5, began_ms + 1) == [], "there is more than it has"
    both = ((ME, "a"), (RIGHT, "a"), (LEFT, "a"))
    assert fetch(machine, LEFT, 6, began_ms + 2) == [Propose(Proposal(3, 7, both))]


def test_an_idle_follower_is_level_for_ever() -> None:
    machine = leading(0)
    fetch(machine, LEFT, 0)
    fetch(machine, RIGHT, 0)
    assert machine.is_settled
    assert machine.handle(TimePassed(1_000 * LAG_MS)) == []
    machine.handle(Appended(1, 1_000 * LAG_MS))
    assert machine.handle(TimePassed(1_000 * LAG_MS)) == []


def test_writers_are_notified_when_too_few_are_left_in_sync() -> None:
    machine = leading(5, min_isr=3)
    changed = leadership(ME, 3, 8, isr=(ME, LEFT))
    assert machine.handle(LeadershipChanged(changed, 5, 0)) == [FailUnsafe()]


# ---- following ---------------------------------------------------------------------------


def test_a_follower_releases_what_it_has_of_what_the_leader_released() -> None:
    machine = following()
    assert machine.handle(Followed(5, 3)) == [ReleaseUpTo(3)]
    assert machine.log_end_offset == 5
    assert machine.handle(Followed(5, 9)) == [ReleaseUpTo(5)]
    assert machine.handle(Followed(6, 2)) == []
    assert machine.high_watermark == 5


def test_a_cut_below_the_high_watermark_takes_that_along() -> None:
    machine = following()
    machine.handle(Followed(5, 5))
    assert machine.handle(Truncated(3)) == []
    assert (machine.log_end_offset, machine.high_watermark) == (3, 3)


def test_a_leaders_events_mean_nothing_to_a_follower() -> None:
    machine = following()
    for event in (Appended(4, 0), FollowerFetched(LEFT, "a", 4, 0), TimePassed(10 * LAG_MS)):
        assert machine.handle(event) == []
    assert machine.handle(MinIsrChanged(2)) == []


def test_isr_membership_depends_on_lag_time_not_on_record_count() -> None:
    """`replica.lag.time.max.ms`, 30 s by default."""
    assert settings_of(ReplicationSettings, BrokerSettings({})).lag_ms_max == 30_000
    machine = leading()
    fetch(machine, LEFT, 0)
    fetch(machine, RIGHT, 0)
    machine.handle(Appended(10_000_000, 0))
    fetch(machine, LEFT, 10_000_000, 1)
    assert machine.handle(TimePassed(LAG_MS)) == [], "ten million behind, and in sync"
    assert machine.handle(TimePassed(LAG_MS + 1)) == [Propose(Proposal(3, 7, WITHOUT_RIGHT))]
