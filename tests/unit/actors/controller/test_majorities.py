"""Majorities with an even and an odd number of voters, and which voters count."""

from __future__ import annotations

import asyncio

import pytest

from raylog.actors.broker.rules import voter as voter_module
from raylog.actors.controller.quorum import VoterQuorum
from raylog.actors.controller.rules.quorum import QuorumLost, RivalLeads
from raylog.actors.metadata.entries import LogEntry, LogSnapshot
from raylog.actors.metadata.followed import DirectoryHistory, MetadataLost
from raylog.actors.metadata.records import VotersChanged, encode_record
from raylog.actors.metadata.voting import JoinVoters
from raylog.wire.errors import InvalidRequest
from tests.worlds.broker.voters import CLUSTER, VoterWorld
from tests.worlds.decorators import in_loop
from tests.worlds.storage.disk import FaultyDisk

MAJORITIES = [(2, 2), (3, 2), (4, 3), (5, 3)]
"""Voters, and how many of them are a majority."""
of_each_size = pytest.mark.parametrize(("voters", "majority"), MAJORITIES)


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now_ms = 1_000

    def __call__(self) -> int:
        return self.now_ms


def entry(offset: int, epoch: int) -> LogEntry:
    return LogEntry(offset, epoch, (b"%d@%d" % (offset, epoch),))


def quorum_of(world: VoterWorld, name: str = "") -> VoterQuorum:
    return VoterQuorum(world.runtime, CLUSTER, range(len(world.disks)), name)


async def begun(voters: int, name: str = "") -> tuple[VoterWorld, VoterQuorum]:
    """A cluster whose voters are all up, and its first controller, which has written one entry."""
    world = VoterWorld(voters)
    await world.up(*range(voters))
    quorum = quorum_of(world, name)
    await quorum.take_over()
    await quorum.append([entry(0, 1)])
    for _ in range(100):
        if all(one[2] == 1 for one in quorum.progress()):
            return world, quorum
        await asyncio.sleep(0)
    raise AssertionError(f"not all voters are level: {quorum.progress()}")


@of_each_size
def test_a_controller_is_supported_from_when_a_majority_has_heard_it(
    voters: int, majority: int
) -> None:
    async def scenario() -> None:
        _, quorum = await begun(voters)
        for answering in range(voters):
            quorum.rules.supported(answering, f"d{answering}", 1e12)
            assert (quorum.supported_ms == 1e12) == (answering + 1 >= majority)

    asyncio.run(scenario())


@of_each_size
def test_an_entry_counts_with_a_majority_and_not_with_half(voters: int, majority: int) -> None:
    async def scenario() -> None:
        world, quorum = await begun(voters)
        for lost in range(majority, voters):
            await world.down(lost)
        await quorum.append([entry(1, 1)])
        await world.down(majority - 1)
        with pytest.raises(QuorumLost, match="no majority of the voters takes"):
            await quorum.append([entry(2, 1)])

    asyncio.run(scenario())


@of_each_size
def test_an_append_waits_for_a_majority_that_is_slow(voters: int, majority: int) -> None:
    async def scenario() -> None:
        world, quorum = await begun(voters)
        released = asyncio.Event()

        async def gate() -> None:
            await released.wait()

        for slow in range(majority - 1, voters):
            world.hosts[slow].gate = gate
        appending = asyncio.ensure_future(quorum.append([entry(1, 1)]))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not appending.done()
        released.set()
        await appending

    asyncio.run(scenario())


@of_each_size
def test_an_epoch_is_won_by_a_majority_and_not_by_half(voters: int, majority: int) -> None:
    async def scenario() -> None:
        world, _ = await begun(voters)
        for lost in range(majority, voters):
            await world.down(lost)
        successor = quorum_of(world)
        await successor.take_over()
        assert (successor.epoch, len(successor.voters)) == (2, voters)
        await world.down(0)
        with pytest.raises(QuorumLost, match=f"^{majority - 1} of {voters} voters answer"):
            await quorum_of(world).take_over()

    asyncio.run(scenario())


@of_each_size
def test_a_majority_has_to_promise_the_epoch_too(voters: int, majority: int) -> None:
    async def scenario() -> None:
        world, _ = await begun(voters)
        for host in list(world.hosts.values())[majority - 1 :]:
            host.voter._failure = "the disk is broken"  # it says what it has, and promises nothing
        with pytest.raises(QuorumLost, match=f"^{majority - 1} of {voters} voters answer"):
            await quorum_of(world).take_over()
        world.hosts[voters - 1].voter._failure = None
        await quorum_of(world).take_over()

    asyncio.run(scenario())


@of_each_size
def test_a_controller_that_a_majority_hears_is_said_to_lead(voters: int, majority: int) -> None:
    async def scenario() -> None:
        world, _ = await begun(voters, "first")
        for lost in range(majority, voters):
            world.hosts[lost].voter.rules._contact = None
        successor = quorum_of(world, "second")
        for _ in range(2):  # what voters said the last time does not count again
            with pytest.raises(RivalLeads):
                await successor.take_over()
        world.hosts[0].voter.rules._contact = None
        if voters % 2:
            await successor.take_over()
        else:  # half of them hear it: neither it nor a successor has a majority
            with pytest.raises(QuorumLost) as refused:
                await successor.take_over()
            assert not isinstance(refused.value, RivalLeads)

    asyncio.run(scenario())


@of_each_size
def test_metadata_is_lost_with_half_of_the_directories(voters: int, majority: int) -> None:
    async def scenario() -> None:
        world, _ = await begun(voters)

        async def lose(broker_id: int) -> None:
            await world.down(broker_id)
            world.disks[broker_id] = FaultyDisk()
            await world.up(broker_id)

        for lost in range(majority, voters):
            await lose(lost)
        await quorum_of(world).take_over()
        await lose(0)
        with pytest.raises(MetadataLost, match=f"Of the {voters} voters"):
            await quorum_of(world).take_over()

    asyncio.run(scenario())


@of_each_size
def test_a_cluster_is_founded_by_all_voters_and_not_by_most(voters: int, majority: int) -> None:
    async def scenario() -> None:
        world = VoterWorld(voters)
        await world.up(*range(voters))
        last = world.hosts[voters - 1].voter
        last._history = lambda: DirectoryHistory(voters - 1, replicas=1)  # it refuses in the end
        with pytest.raises(QuorumLost, match=f"^{voters - 1} of {voters} voters answer"):
            await quorum_of(world).take_over()

    asyncio.run(scenario())


# ---- who counts, and from when ---------------------------------------------------------------


@in_loop
async def test_the_silence_is_that_of_voters_alone() -> None:
    world, quorum = await begun(3)
    await quorum.append([LogEntry(1, 1, (removal(0, 1),))])
    now_ms = world.runtime.monotonic_ms()
    for host, silent_ms in zip(world.hosts.values(), (9_000, 8_000, 1), strict=True):
        host.voter.rules._any_contact_ms = now_ms - silent_ms
    successor = quorum_of(world)
    await successor.take_over()
    assert len(successor.voters) == 2
    assert 8_000 <= successor.rules.silent_ms < 9_000


def removal(*left: int) -> bytes:
    """A record that names these voters."""
    return encode_record(VotersChanged(tuple((one, f"d{one}") for one in left)))


@in_loop
async def test_support_counts_from_when_a_voter_was_asked_and_not_from_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    world, quorum = await begun(2)
    monkeypatch.setattr(world.runtime, "monotonic_ms", clock)
    clock.now_ms = 10**9

    async def slowly() -> None:
        clock.now_ms += 500

    for host in world.hosts.values():
        host.gate = slowly
    asked_ms = clock.now_ms
    await quorum.append([entry(1, 1)])
    assert clock.now_ms == asked_ms + 1_000
    assert quorum.supported_ms == asked_ms


def test_a_promise_supports_from_when_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        clock = Clock()
        world, _ = await begun(3)
        monkeypatch.setattr(world.runtime, "monotonic_ms", clock)
        clock.now_ms = 10**9
        for host in world.hosts.values():
            monkeypatch.setattr(host.voter, "_sync", slow_sync(clock))
        successor = quorum_of(world)
        await successor.take_over()
        assert clock.now_ms > 10**9
        assert successor.supported_ms == 10**9
        assert successor.rules.in_contact_since(10**9) == successor.voters

    def slow_sync(clock: Clock) -> object:
        async def sync() -> None:
            clock.now_ms += 500

        return sync

    asyncio.run(scenario())


@in_loop
async def test_contact_and_level_of_voters_are_reported_by_the_wall_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    world, quorum = await begun(3)
    monkeypatch.setattr(world.runtime, "monotonic_ms", clock)
    monkeypatch.setattr(world.runtime, "now_ms", lambda: clock.now_ms + 7)
    clock.now_ms = 10**12
    await world.down(2)
    await quorum.append([entry(1, 1)])
    assert [one[3:] for one in quorum.progress()[:2]] == [(10**12 + 7, 10**12 + 7)] * 2
    clock.now_ms += 500
    quorum.rules.supported(1, "d1", clock.now_ms)
    quorum.rules.supported(2, "d2", clock.now_ms)  # it is heard, and lacks an entry
    one, other = quorum.progress()[1:]
    assert one[3:] == (10**12 + 507, 10**12 + 507)
    assert other[3] == 10**12 + 507
    assert other[4] < 10**12, "level when it began"


# ---- voters that fail ------------------------------------------------------------------------


def fails_once(error: Exception) -> object:
    """A gate that lets nothing through the first time."""
    errors = [error]

    async def gate() -> None:
        if errors:
            raise errors.pop()

    return gate


def alone(brokers: int) -> VoterWorld:
    """Brokers of which the first alone votes."""
    world = VoterWorld(brokers)
    world.voters = world.voters[:1]
    return world


@in_loop
async def test_a_copy_that_fails_while_it_joins_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = alone(2)
    await world.up(0, 1)
    quorum = quorum_of(world)
    await quorum.take_over()
    await quorum.append([entry(0, 1)])
    monkeypatch.setattr(world.hosts[1], "gate", fails_once(InvalidRequest("no")))
    with pytest.raises(QuorumLost, match="broker 1 does not take the metadata log"):
        await quorum.bring_level(1, "d1")
    assert await quorum.bring_level(1, "d1"), "it may be tried again"


@in_loop
async def test_a_copy_that_learns_of_a_later_controller_while_it_joins_deposes_nobody() -> None:
    world = alone(2)
    await world.up(0, 1)
    quorum = quorum_of(world)
    await quorum.take_over()
    await quorum.append([entry(0, 1)])
    joining = world.hosts[1]

    async def gate() -> None:
        await joining.voter.join(JoinVoters(9, "another", "d1"))

    joining.gate = gate
    with pytest.raises(QuorumLost, match="does not take the metadata log"):
        await quorum.bring_level(1, "d1")
    assert not quorum.rules.is_deposed
    await quorum.append([entry(1, 1)])


@in_loop
async def test_voters_that_failed_are_tried_again_with_the_next_append() -> None:
    world, quorum = await begun(2)
    await world.down(1)
    with pytest.raises(QuorumLost):
        await quorum.append([entry(1, 1)])
    await world.up(1)
    await quorum.append([entry(2, 1)])
    assert world.hosts[1].voter.rules.copy.next_offset == 3


@in_loop
async def test_one_voter_that_refuses_a_controller_for_a_later_one_ends_its_epoch() -> None:
    """Even while others could still make a majority: the later one has won, or is about to."""

    world, quorum = await begun(5)

    async def never() -> None:
        await asyncio.get_running_loop().create_future()

    for slow in (1, 2, 3, 4):
        world.hosts[slow].gate = never
    await world.hosts[0].voter.join(JoinVoters(9, "another", "d0"))
    with pytest.raises(QuorumLost):
        await quorum.append([entry(1, 1)])
    assert quorum.rules.is_deposed
    assert [one.failure is not None for one in quorum.rules.followers] == [
        True,
        *[False] * 4,
    ], "nobody is awaited"


@in_loop
async def test_a_voter_that_is_away_keeps_no_snapshot_from_the_others() -> None:
    world, quorum = await begun(3)
    await world.down(0)
    await quorum.install_snapshot(LogSnapshot(1, 1, (b"all",)))
    assert [host.voter.state().start_offset for host in world.hosts.values()] == [1, 1]


# ---- the log that is adopted -----------------------------------------------------------------


def test_a_log_that_takes_many_answers_is_adopted_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(voter_module, "FETCH_BYTES", 1)

    async def scenario() -> None:
        world, _ = await begun(1)
        first = quorum_of(world)
        await first.take_over()
        await first.append([entry(at, 2) for at in range(1, 5)])
        snapshot = LogSnapshot(2, 2, (b"all",))
        await first.install_snapshot(snapshot)
        second = quorum_of(world)
        await second.take_over()
        assert second.adopted == (snapshot, [entry(at, 2) for at in (2, 3, 4)])
        assert second.next_offset == 5

    asyncio.run(scenario())


@in_loop
async def test_a_voter_that_gives_less_than_it_said_it_has_ends_the_take_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, _ = await begun(1)
    host = world.hosts[0]

    honest = host.voter.rules.state
    monkeypatch.setattr(host.voter.rules, "state", lambda: honest()._replace(next_offset=9))
    with pytest.raises(QuorumLost, match=r"voter 0 does not give its log$"):
        async with asyncio.timeout(10):
            await quorum_of(world).take_over()


@in_loop
async def test_a_voter_that_fails_while_it_gives_its_log_ends_the_take_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, _ = await begun(1)

    async def fails(epoch: int, offset: int) -> object:
        raise InvalidRequest(f"nothing from {offset} in epoch {epoch}")

    monkeypatch.setattr(world.hosts[0], "voter_fetch", fails)
    with pytest.raises(QuorumLost, match="does not give its log: nothing from 0 in epoch 2"):
        await quorum_of(world).take_over()
