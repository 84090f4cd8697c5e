"""Changes of the voters: what is accepted, one at a time, and the texts of refusals."""

import pytest

from raylog.actors.controller.messages import AddVoter, RemoveVoter
from raylog.actors.controller.rules.voters import VOTERS_MAX, WANTED_AGAIN_MS
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import Voters, VotersChanged
from raylog.wire.errors import (
    DuplicateVoter,
    InvalidRequest,
    RequestTimedOut,
    VoterNotFound,
)
from tests.worlds.controller.machine import Controlled


def named(*broker_ids: int) -> Voters:
    return tuple((one, f"d{one}") for one in broker_ids)


def add(broker_id: int, directory_id: str | None = None) -> AddVoter:
    return AddVoter(broker_id, directory_id or f"d{broker_id}", 1_000)


def remove(broker_id: int, directory_id: str | None = None) -> RemoveVoter:
    return RemoveVoter(broker_id, directory_id or f"d{broker_id}")


class Quorum(Controlled):
    """A machine with these voters, all of which follow."""

    def __init__(self, *voters: int, brokers: int = 6) -> None:
        super().__init__(brokers)
        self.machine.replay([VotersChanged(named(*voters))])
        self.voters = self.machine.voters

    def begin(self, asked: AddVoter) -> None:
        self.voters.begin_joining(asked, self.image.offset)

    def joined(self, *following: int) -> None:
        self.carry(self.voters.joined(named(*following)))

    def remove(self, asked: RemoveVoter, *following: int) -> None:
        self.carry(self.voters.remove(asked, self.image.offset, named(*following)))


def test_a_copy_votes_from_the_moment_the_set_is_appended() -> None:
    quorum = Quorum(0)
    quorum.begin(add(1))
    assert quorum.image.voters == named(0)
    quorum.joined(0)
    assert quorum.image.voters == named(0, 1)


def test_one_joins_at_a_time_and_whoever_gave_up_makes_room() -> None:
    quorum = Quorum(0)
    quorum.begin(add(1))
    with pytest.raises(RequestTimedOut, match="previous voter change request"):
        quorum.begin(add(2))
    with pytest.raises(RequestTimedOut, match="previous voter change request"):
        quorum.remove(remove(0), 0)
    quorum.voters.gave_up()
    quorum.begin(add(2))


def test_a_change_waits_for_the_commit_of_the_one_before() -> None:
    quorum = Quorum(0, 1, 2)
    before = quorum.image.offset
    quorum.remove(remove(2), 0, 1)
    with pytest.raises(RequestTimedOut):
        quorum.voters.remove(remove(1), before, named(0, 1))
    with pytest.raises(RequestTimedOut):
        quorum.voters.begin_joining(add(3), before)
    quorum.voters.begin_joining(add(3), before + 1)


def test_uncommitted_records_of_other_decisions_do_not_block_a_voter_change() -> None:
    quorum = Quorum(0, 1, 2)
    committed = quorum.image.offset
    quorum.topic("t", (0,))
    quorum.voters.begin_joining(add(3), committed)


@pytest.mark.parametrize("directory_id", ["d1", "another"])
def test_a_broker_votes_once(directory_id: str) -> None:
    quorum = Quorum(0, 1)
    with pytest.raises(DuplicateVoter) as refused:
        quorum.begin(add(1, directory_id))
    assert str(refused.value) == (
        f"The voter id for ReplicaKey(id=1, directoryId={directory_id}) is already part of the set "
        "of voters [ReplicaKey(id=0, directoryId=d0), ReplicaKey(id=1, directoryId=d1)]."
    )


def test_there_are_not_too_many_voters() -> None:
    quorum = Quorum(*range(VOTERS_MAX))
    with pytest.raises(InvalidRequest, match="There are 5 voters"):
        quorum.begin(add(5))


def test_absent_broker_cannot_become_a_voter() -> None:
    quorum = Quorum(0)
    with pytest.raises(RequestTimedOut, match="since broker 9 is not registered"):
        quorum.begin(add(9))
    with pytest.raises(RequestTimedOut, match="since it is lagging behind: broker 1 has the dir"):
        quorum.begin(add(1, "lost"))
    quorum.begin(add(1))


@pytest.mark.parametrize(
    ("voters", "asked"),
    [((0, 1), remove(2)), ((0, 1), remove(1, "another")), ((1,), remove(1))],
    ids=["nobody", "another directory", "the last one"],
)
def test_unknown_voter_cannot_be_removed(voters: tuple[int, ...], asked: RemoveVoter) -> None:
    quorum = Quorum(*voters)
    with pytest.raises(VoterNotFound, match=r"Cannot remove voter ReplicaKey.* from the set of"):
        quorum.remove(asked, *voters)


def test_a_set_without_a_majority_that_follows_is_not_accepted() -> None:
    quorum = Quorum(0, 1, 2)
    with pytest.raises(InvalidRequest, match=r"directoryId=d1\)\] 1 would follow"):
        quorum.remove(remove(2), 0, 2)
    quorum.remove(remove(2), 0, 1)
    assert quorum.image.voters == named(0, 1)
    quorum.begin(add(3))
    with pytest.raises(InvalidRequest, match="1 would follow"):
        quorum.joined()
    quorum.begin(add(3))  # a refused one is not under way any more
    quorum.joined(0)
    assert quorum.image.voters == named(0, 1, 3)


def test_a_lost_voter_is_removed_and_its_brokers_new_directory_added() -> None:
    quorum = Quorum(0, 1, 2)
    quorum.remove(remove(2), 0, 1)
    quorum.pass_time(10_000, 0, 1)
    quorum.register(2, directory_id="new", incarnation="later")
    quorum.begin(add(2, "new"))
    quorum.joined(0, 1)
    assert quorum.image.voters == (*named(0, 1), (2, "new"))


def settle(quorum: Quorum, *alive: int) -> None:
    """Let these brokers be live for longer than a session."""
    for _ in range(20):
        quorum.machine.brokers.settled(quorum.now_ms)
        quorum.pass_time(500, *alive)


def wanted(quorum: Quorum, committed: int = 1_000) -> AddVoter | RemoveVoter | None:
    settled = quorum.machine.brokers.settled(quorum.now_ms)
    return quorum.voters.wanted(committed, settled, quorum.now_ms)


def test_voters_that_join_by_themselves_become_three() -> None:
    two = Quorum(0, brokers=2)
    settle(two, 0, 1)
    assert wanted(two) is None
    quorum = Quorum(0, brokers=4)
    settle(quorum, 0, 1, 2, 3)
    for joining in (1, 2):
        asked = wanted(quorum)
        assert asked == AddVoter(joining, f"d{joining}", 10_000)
        quorum.begin(asked)
        assert wanted(quorum) is None
        quorum.joined(0, 1)
        assert wanted(quorum, quorum.image.offset - 1) is None
    assert wanted(quorum) is None


def test_a_broker_that_comes_and_goes_does_not_join() -> None:
    quorum = Quorum(0, brokers=2)
    settle(quorum, 0, 1)
    quorum.register(2)
    for _ in range(5):
        quorum.beat(2)
        quorum.pass_time(4_000, 0, 1, 2)
        assert wanted(quorum) is None
        quorum.pass_time(8_000, 0, 1)
        assert wanted(quorum) is None
    quorum.beat(2)
    settle(quorum, 0, 1, 2)
    assert wanted(quorum) == AddVoter(1, "d1", 10_000)


def test_another_directory_of_a_broker_has_to_be_there_for_a_while_too() -> None:
    quorum = Quorum(0, 1, 2, brokers=3)
    settle(quorum, 0, 1, 2)
    quorum.pass_time(10_000, 0, 1)
    quorum.register(2, directory_id="new", incarnation="later")
    quorum.beat(2)
    assert wanted(quorum) is None
    settle(quorum, 0, 1, 2)
    assert wanted(quorum) == remove(2)


def test_after_a_change_that_failed_nothing_changes_for_a_while() -> None:
    quorum = Quorum(0, brokers=3)
    settle(quorum, 0, 1, 2)
    asked = wanted(quorum)
    assert isinstance(asked, AddVoter)
    quorum.begin(asked)
    quorum.voters.gave_up()
    quorum.voters.postpone(quorum.now_ms)
    assert wanted(quorum) is None
    quorum.pass_time(WANTED_AGAIN_MS - 1, 0, 1, 2)
    assert wanted(quorum) is None
    quorum.pass_time(1, 0, 1, 2)
    assert wanted(quorum) == asked


def test_removed_voter_rejoins_only_when_added_explicitly() -> None:
    quorum = Quorum(0, 1, 2, brokers=3)
    quorum.remove(remove(2), 0, 1)
    assert quorum.image.kept_out == (2,)
    settle(quorum, 0, 1, 2)
    assert wanted(quorum) is None
    again = MetadataImage()
    again.apply_update(-1, quorum.image.offset, quorum.image.snapshot())
    assert again.kept_out == (2,)
    quorum.register(3)
    quorum.beat(3)
    settle(quorum, 0, 1, 2, 3)
    assert wanted(quorum) == AddVoter(3, "d3", 10_000)
    quorum.begin(add(2))
    quorum.joined(0, 1)
    assert quorum.image.voters == named(0, 1, 2)
    assert not quorum.image.kept_out


def test_a_lost_voter_is_replaced_when_its_broker_is_back() -> None:
    quorum = Quorum(0, 1, 2, brokers=3)
    quorum.pass_time(10_000, 0, 1)
    assert wanted(quorum) is None
    quorum.register(2, directory_id="new", incarnation="later")
    quorum.beat(2)
    settle(quorum, 0, 1, 2)
    asked = wanted(quorum)
    assert asked == remove(2)
    quorum.remove(asked, 0, 1)
    assert quorum.image.kept_out == ()  # nobody has taken the vote from its broker
    assert wanted(quorum) == AddVoter(2, "new", 10_000)
