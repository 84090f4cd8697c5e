"""The controller's side of the metadata log: epochs, majorities, differing voters."""

import asyncio

import pytest

from raylog.actors.controller import quorum as quorum_module
from raylog.actors.controller.quorum import VoterQuorum
from raylog.actors.controller.rules.quorum import QuorumLost, QuorumRules, Ready
from raylog.actors.metadata.entries import LogEntry, LogSnapshot
from raylog.actors.metadata.records import VotersChanged, encode_record
from raylog.actors.metadata.voting import JoinVoters, VoterAppend, VoterLog, VoterState
from tests.worlds.broker.voters import CLUSTER, VoterWorld
from tests.worlds.decorators import in_loop


def entry(offset: int, epoch: int) -> LogEntry:
    return LogEntry(offset, epoch, (b"%d@%d" % (offset, epoch),))


def quorum_of(world: VoterWorld) -> VoterQuorum:
    return VoterQuorum(world.runtime, CLUSTER, range(len(world.disks)))


async def until(quorum: VoterQuorum, *offsets: int) -> None:
    """Wait until the voters have synced this far."""
    for _ in range(100):
        if tuple(one[2] for one in quorum.progress()) == offsets:
            return
        await asyncio.sleep(0)
    raise AssertionError(f"{quorum.progress()} instead of {offsets}")


@in_loop
async def test_one_voter_is_its_own_majority() -> None:
    world = VoterWorld(1)
    await world.up(0)
    quorum = quorum_of(world)
    await quorum.take_over()
    assert (quorum.epoch, quorum.voters) == (1, ((0, "d0"),))
    await quorum.append([entry(0, 1), entry(1, 1)])
    assert quorum.next_offset == 2
    assert world.hosts[0].appends == [
        VoterAppend(1, 0, 0, [entry(0, 1), entry(1, 1)], directory_id="d0")
    ]
    await quorum.append([entry(2, 1)])
    assert world.hosts[0].appends[1] == VoterAppend(1, 1, 2, [entry(2, 1)], directory_id="d0")
    assert [one[:3] for one in quorum.progress()] == [(0, "d0", 3)]


def test_a_voter_that_hangs_holds_up_a_successor_for_a_moment_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quorum_module, "STATE_TIMEOUT_MS", 100)

    async def scenario() -> None:
        world = VoterWorld(3)
        await world.up(0, 1, 2)
        await quorum_of(world).take_over()
        world.hosts[2].hangs = True
        successor = quorum_of(world)
        async with asyncio.timeout(30):
            await successor.take_over()
        assert successor.epoch == 2

    asyncio.run(scenario())


def test_a_voter_that_hangs_is_not_waited_for_when_a_majority_has_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quorum_module, "STATE_TIMEOUT_MS", 60_000)

    async def scenario() -> None:
        world = VoterWorld(3)
        await world.up(0, 1, 2)
        await quorum_of(world).take_over()
        world.hosts[0].hangs = True
        successor = VoterQuorum(world.runtime, CLUSTER, range(3), moment_ms=50)
        async with asyncio.timeout(30):  # half of the time limit of what hangs
            await successor.take_over()
        assert (successor.epoch, len(successor.voters)) == (2, 3)
        world.hosts[1].hangs = True
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await VoterQuorum(world.runtime, CLUSTER, range(3), moment_ms=1).take_over()

    asyncio.run(scenario())


def test_a_new_cluster_waits_for_all_of_its_voters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blank copies tell nothing: the one that hangs may be the only one that is not."""
    monkeypatch.setattr(quorum_module, "STATE_TIMEOUT_MS", 60_000)

    async def scenario() -> None:
        world = VoterWorld(3)
        await world.up(0, 1, 2)
        world.hosts[2].hangs = True
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await VoterQuorum(world.runtime, CLUSTER, range(3), moment_ms=1).take_over()

    asyncio.run(scenario())


@in_loop
async def test_take_over_reports_how_long_no_voter_heard_a_controller() -> None:
    world = VoterWorld(3)
    await world.up(0, 1, 2)
    first = quorum_of(world)
    await first.take_over()
    await first.append([entry(0, 1)])
    await until(first, 1, 1, 1)
    now_ms = world.runtime.monotonic_ms()
    for host, silent_ms in zip(world.hosts.values(), (9_000, 7_000, 8_000), strict=True):
        host.voter.rules._any_contact_ms = now_ms - silent_ms
    successor = quorum_of(world)
    await successor.take_over()
    assert 7_000 <= successor.rules.silent_ms < 8_000


@in_loop
async def test_without_voters_there_is_no_quorum() -> None:
    world = VoterWorld(1)
    with pytest.raises(QuorumLost, match="no voter answers"):
        await quorum_of(world).take_over()


@in_loop
async def test_a_successor_has_a_higher_epoch_and_the_whole_log() -> None:
    world = VoterWorld(1)
    await world.up(0)
    first = quorum_of(world)
    await first.take_over()
    await first.append([entry(0, 1), entry(1, 1)])
    second = quorum_of(world)
    await second.take_over()
    assert second.epoch == 2
    assert second.adopted == (LogSnapshot(0, 0, ()), [entry(0, 1), entry(1, 1)])
    with pytest.raises(QuorumLost):
        await first.append([entry(2, 1)])
    await second.append([entry(2, 2)])
    assert world.hosts[0].voter.state().next_offset == 3


@in_loop
async def test_a_majority_is_enough_and_a_minority_is_not() -> None:
    world = VoterWorld(3)
    await world.up(0, 1, 2)
    quorum = quorum_of(world)
    await quorum.take_over()
    await world.down(2)
    await quorum.append([entry(0, 1)])
    await world.down(1)
    with pytest.raises(QuorumLost, match="no majority"):
        await quorum.append([entry(1, 1)])
    with pytest.raises(QuorumLost, match="1 of 3 voters answer"):
        await quorum_of(world).take_over()


@in_loop
async def test_a_slow_voter_holds_nobody_up_and_is_brought_level() -> None:
    world = VoterWorld(3)
    await world.up(0, 1, 2)
    released = asyncio.Event()

    async def gate() -> None:
        await released.wait()

    world.hosts[2].gate = gate
    quorum = quorum_of(world)
    await quorum.take_over()
    await quorum.append([entry(0, 1)])
    await quorum.append([entry(1, 1)])
    await until(quorum, 2, 2, 0)
    released.set()
    await until(quorum, 2, 2, 2)
    assert world.hosts[2].voter.state().next_offset == 2


@in_loop
async def test_a_voter_that_comes_back_is_cut_to_where_it_agrees() -> None:
    world = VoterWorld(3)
    await world.up(0, 1, 2)
    first = quorum_of(world)
    await first.take_over()
    await first.append([entry(0, 1)])
    await until(first, 1, 1, 1)
    # Broker 2 alone gets entries that never count.
    await world.hosts[2].voter.append(VoterAppend(1, 1, 1, [entry(1, 1), entry(2, 1)]))
    await world.down(2)
    second = quorum_of(world)
    await second.take_over()
    await second.append([entry(1, 2)])
    await world.up(2)
    await second.append([entry(2, 2)])
    await until(second, 3, 3, 3)
    assert world.hosts[2].voter.fetch(2, 0).entries == [entry(0, 1), entry(1, 2), entry(2, 2)]


@in_loop
async def test_the_longest_log_of_the_majority_is_adopted() -> None:
    world = VoterWorld(3)
    await world.up(0, 1, 2)
    first = quorum_of(world)
    await first.take_over()
    await first.append([entry(0, 1)])
    await until(first, 1, 1, 1)
    await world.down(0)
    await first.append([entry(1, 1)])
    await until(first, 1, 2, 2)
    await world.down(2)
    await world.up(0)
    second = quorum_of(world)
    await second.take_over()
    assert second.adopted[1] == [entry(0, 1), entry(1, 1)]
    await second.append([entry(2, 2)])
    assert world.hosts[0].voter.fetch(2, 0).entries == [entry(0, 1), entry(1, 1), entry(2, 2)]


@in_loop
async def test_snapshots_reach_voters_that_lag_behind_them() -> None:
    world = VoterWorld(3)
    await world.up(0, 1, 2)
    quorum = quorum_of(world)
    await quorum.take_over()
    await world.down(2)
    await quorum.append([entry(at, 1) for at in range(4)])
    snapshot = LogSnapshot(3, 1, (b"all",))
    await quorum.install_snapshot(snapshot)
    assert quorum.adopted == (snapshot, [entry(3, 1)])
    assert world.hosts[0].voter.state().start_offset == 3
    await world.up(2)
    await quorum.append([entry(4, 1)])
    await until(quorum, 5, 5, 5)
    assert world.hosts[2].voter.fetch(1, 0) == world.hosts[0].voter.fetch(1, 0)
    successor = quorum_of(world)
    await successor.take_over()
    assert successor.adopted == (snapshot, [entry(3, 1), entry(4, 1)])


@in_loop
async def test_a_new_directory_under_a_voters_number_is_no_voter() -> None:
    world = VoterWorld(3)
    await world.up(0, 1, 2)
    await quorum_of(world).take_over()
    await world.down(2)
    world.hosts[1].voter.rules.directory_id = "another"
    with pytest.raises(QuorumLost, match="1 of 3"):
        await quorum_of(world).take_over()


@in_loop
async def test_a_later_log_is_adopted_before_a_longer_one() -> None:
    world = VoterWorld(3)
    await world.up(0, 1, 2)
    first = quorum_of(world)
    await first.take_over()
    await first.append([entry(0, 1)])
    await until(first, 1, 1, 1)
    lost = [entry(1, 1), entry(2, 1), entry(3, 1)]
    await world.hosts[0].voter.append(VoterAppend(1, 1, 1, lost))
    await world.down(0)
    second = quorum_of(world)
    await second.take_over()
    await second.append([entry(1, 2)])
    await world.down(2)
    await world.up(0)
    third = quorum_of(world)
    await third.take_over()
    assert third.adopted[1] == [entry(0, 1), entry(1, 2)]


@in_loop
async def test_a_voter_that_is_behind_the_snapshot_gets_it_wherever_it_is_asked_first() -> None:
    world = VoterWorld(3)
    await world.up(0, 1, 2)
    first = quorum_of(world)
    await first.take_over()
    await first.append([entry(0, 1)])
    await until(first, 1, 1, 1)
    await world.down(2)
    await first.append([entry(at, 1) for at in range(1, 6)])
    snapshot = LogSnapshot(5, 1, (b"all",))
    await first.install_snapshot(snapshot)
    await world.up(2)
    second = quorum_of(world)
    await second.take_over()
    await second.append([entry(6, 2)])
    await until(second, 7, 7, 7)
    assert world.hosts[2].voter.fetch(2, 0).snapshot == snapshot


@in_loop
async def test_only_a_majority_that_heard_it_supports_a_controller() -> None:
    world = VoterWorld(3)
    await world.up(0, 1, 2)
    quorum = quorum_of(world)
    await quorum.take_over()
    quorum.rules.supported(1, "d1", 1e12)
    assert quorum.supported_ms < 1e12
    quorum.rules.supported(9, "d9", 2e12)
    quorum.rules.supported(2, "another", 2e12)
    assert quorum.supported_ms < 1e12
    quorum.rules.supported(2, "d2", 3e12)
    assert quorum.supported_ms == 1e12
    quorum.rules.supported(2, "d2", 5)
    assert quorum.supported_ms == 1e12


@in_loop
async def test_a_probe_finds_out_that_another_controller_has_come() -> None:
    world = VoterWorld(3)
    await world.up(0, 1, 2)
    first = quorum_of(world)
    await first.take_over()
    first.probe()
    await until(first, 0, 0, 0)
    assert not first.rules.is_deposed
    await quorum_of(world).take_over()
    first.probe()
    for _ in range(20):
        await asyncio.sleep(0)
    assert first.rules.is_deposed


# ---- voters that change ----------------------------------------------------------------------


def change(offset: int, epoch: int, *broker_ids: int) -> LogEntry:
    """An entry that names these voters."""
    voters = tuple((one, f"d{one}") for one in broker_ids)
    return LogEntry(offset, epoch, (encode_record(VotersChanged(voters)),))


async def founded(world: VoterWorld, *broker_ids: int) -> VoterQuorum:
    """A controller of the first of all brokers, which are all up."""
    await world.up(*broker_ids)
    quorum = VoterQuorum(world.runtime, CLUSTER, [0])
    await quorum.take_over()
    await quorum.append([entry(0, 1), change(1, 1, 0)])
    return quorum


def alone_of(count: int) -> VoterWorld:
    """Brokers of which the first alone votes."""
    world = VoterWorld(count)
    world.voters = world.voters[:1]
    return world


@in_loop
async def test_a_copy_is_brought_level_and_counts_once_the_set_has_it() -> None:
    world = alone_of(2)
    quorum = await founded(world, 0, 1)
    assert world.hosts[1].voter.rules.is_blank
    assert await quorum.bring_level(1, "d1")
    assert world.hosts[1].voter.rules.copy.next_offset == 2
    assert list(quorum.voters) == [(0, "d0")]
    await world.down(1)
    await quorum.append([entry(2, 1)])  # it does not count yet
    await world.up(1)
    assert await quorum.bring_level(1, "d1")
    await quorum.append([change(3, 1, 0, 1)])
    assert quorum.voters == ((0, "d0"), (1, "d1"))
    await world.down(1)
    with pytest.raises(QuorumLost, match="no majority"):
        await quorum.append([entry(4, 1)])


@in_loop
async def test_a_copy_joins_behind_a_snapshot() -> None:
    world = alone_of(2)
    quorum = await founded(world, 0, 1)
    snapshot = LogSnapshot(2, 1, (b"all", *change(1, 1, 0).records))
    await quorum.install_snapshot(snapshot)
    await quorum.append([entry(2, 1)])
    assert await quorum.bring_level(1, "d1")
    assert world.hosts[1].voter.fetch(1, 0) == VoterLog(snapshot, [entry(2, 1)])
    assert world.hosts[1].voter.rules.voters == ((0, "d0"),)


@in_loop
async def test_another_directory_is_not_brought_level() -> None:
    world = alone_of(2)
    quorum = await founded(world, 0, 1)
    with pytest.raises(QuorumLost, match="does not join: broker 1 has the directory d1"):
        await quorum.bring_level(1, "lost")
    await world.down(1)
    with pytest.raises(QuorumLost, match="does not join"):
        await quorum.bring_level(1, "d1")


@in_loop
async def test_a_copy_that_knows_a_later_epoch_is_outbid() -> None:
    world = alone_of(2)
    quorum = await founded(world, 0, 1)
    await world.hosts[1].voter.join(JoinVoters(9, "another", "d1"))
    assert not await quorum.bring_level(1, "d1")
    assert not quorum.rules.is_deposed
    successor = VoterQuorum(world.runtime, CLUSTER, [0, 1])
    await successor.take_over()
    assert (successor.epoch, successor.voters) == (10, ((0, "d0"),))
    assert await successor.bring_level(1, "d1")


@in_loop
async def test_a_successor_finds_voters_that_it_was_not_told_of() -> None:
    world = alone_of(3)
    quorum = await founded(world, 0, 1, 2)
    for at, joining in enumerate((1, 2), 2):
        assert await quorum.bring_level(joining, f"d{joining}")
        await quorum.append([change(at, 1, *range(joining + 1))])
    await world.down(1)
    successor = VoterQuorum(world.runtime, CLUSTER, [0])
    await successor.take_over()
    assert successor.voters == ((0, "d0"), (1, "d1"), (2, "d2"))
    assert successor.next_offset == 4


@in_loop
async def test_removed_voter_tells_a_successor_about_its_removal() -> None:
    world = alone_of(2)
    quorum = await founded(world, 0, 1)
    assert await quorum.bring_level(1, "d1")
    await quorum.append([change(2, 1, 0, 1)])
    released = asyncio.Event()

    async def gate() -> None:
        await released.wait()

    world.hosts[0].gate = gate
    removing = asyncio.ensure_future(quorum.append([change(3, 1, 0)]))
    for _ in range(20):
        await asyncio.sleep(0)
    assert world.hosts[1].voter.rules.copy.next_offset == 4
    assert not removing.done(), "broker 0 alone counts"
    assert world.hosts[0].voter.rules.voters == ((0, "d0"), (1, "d1"))
    successor = VoterQuorum(world.runtime, CLUSTER, [0])
    await successor.take_over()
    assert (successor.voters, successor.next_offset) == (((0, "d0"),), 4)
    released.set()
    with pytest.raises(QuorumLost):
        await removing


@in_loop
async def test_contact_with_a_voter_is_counted_per_directory() -> None:
    world = VoterWorld(3)
    await world.up(0, 1, 2)
    quorum = quorum_of(world)
    await quorum.take_over()
    quorum.rules.supported(0, "d0", 1e12)
    quorum.rules.supported(1, "new", 1e12)
    assert quorum.rules.in_contact_since(1e12) == ((0, "d0"),)


def copy(broker_id: int, offset: int, *voters: int, promised: int = 3) -> VoterState:
    """What a broker tells of its copy, which names these voters last."""
    named = tuple((one, f"d{one}") for one in voters)
    return VoterState(broker_id, f"d{broker_id}", named, promised, 1, offset, 0)


@pytest.mark.parametrize(
    ("reported", "suffices"),
    [
        ([], False),
        ([copy(0, 9, 0)], True),
        ([copy(0, 9, 0, 1)], False),
        ([copy(0, 9, 0, 1, 2), copy(1, 8, 0, 1, 2)], True),
        ([copy(0, 5, 0), copy(1, 9, 1, 2, 3)], False),  # of its voters there is one
        ([copy(0, 5, 0), copy(1, 9, 1, 2, 3), copy(2, 7, 0, 1, 2)], True),
        ([copy(0, 9, 0), copy(1, 5, 1, 2, 3)], True),
        ([copy(0, 9, 0, 1, 2), copy(1, 0, 0, 1, 2, promised=0)], False),  # it is blank
    ],
)
def test_the_latest_copy_says_whose_majority_has_to_be_there(
    reported: list[VoterState], suffices: bool
) -> None:
    for states in (reported, reported[::-1]):
        rules = QuorumRules("c", range(9))
        ready = rules.begin(0)
        for state in states:
            ask = ready.asks[state.broker_id]
            assert rules.answered(ask, state, 0) == Ready(moment=rules._suffices())
        assert rules._suffices() == suffices
