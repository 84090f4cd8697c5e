"""A broker's copy of the metadata log: when it exists, when it votes, which voters it names."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from raylog.actors.broker import voter_membership
from raylog.actors.broker.identity import DataDirectory, Identity, read_identity
from raylog.actors.broker.voter_membership import VoterMembership
from raylog.actors.controller.messages import BrokerHeartbeat
from raylog.actors.metadata.entries import LogEntry
from raylog.actors.metadata.records import Voters, VotersChanged, encode_record
from raylog.actors.metadata.voting import JoinVoters, NewEpoch, VoterAppend
from raylog.wire.errors import InvalidRequest, InvalidVoterKey, KafkaStorageError
from tests.worlds.broker.voters import VoterWorld
from tests.worlds.decorators import TMP_PATH, in_world

OTHERS: Voters = ((0, "d0"), (1, "d1"))
ALL: Voters = (*OTHERS, (2, "d2"))


class Home:
    """Broker 2 with its directory and its voter replica."""

    def __init__(self, path: Path, voters: Voters) -> None:
        self.path = path
        self.data = DataDirectory(path, Identity("c", 2, "d2", voters), fsync=False)
        self.seat = self.reopened()

    def reopened(self) -> VoterMembership:
        runtime = VoterWorld(0).runtime
        return VoterMembership(runtime, self.data, fsync=False, heartbeat_interval_ms=500)

    def noted(self) -> Identity:
        found = read_identity(self.path)
        assert found is not None
        return found


def play(story: Callable[[Home], Awaitable[None]], path: Path, voters: Voters) -> None:
    async def main() -> None:
        home = Home(path, voters)
        try:
            await story(home)
        finally:
            home.seat.close()
            home.data.close()

    asyncio.run(main())


def naming(offset: int, epoch: int, voters: Voters) -> LogEntry:
    return LogEntry(offset, epoch, (encode_record(VotersChanged(voters)),))


async def noted(home: Home, voters: Voters) -> None:
    """Wait until `meta.json` names these voters."""
    while home.noted().voters != voters:  # noqa: ASYNC110 - nobody says when it is written
        await asyncio.sleep(0.001)


def test_a_first_voter_has_a_copy_from_the_start_and_others_have_none(tmp_path: Path) -> None:
    async def first(home: Home) -> None:
        assert (home.seat.votes, home.seat.voters, home.seat.trouble) == (True, ALL, "")
        assert home.seat.require_voter().rules.is_blank

    async def other(home: Home) -> None:
        assert (home.seat.votes, home.seat.voters, home.seat.trouble) == (False, OTHERS, "")
        asked = BrokerHeartbeat(2, 1, 1)
        assert home.seat.signed(asked) == asked
        with pytest.raises(InvalidRequest, match="broker 2 holds no metadata log"):
            home.seat.require_voter()

    play(first, tmp_path / "first", ALL)
    play(other, tmp_path / "other", OTHERS)


@in_world(play, TMP_PATH, OTHERS)
async def test_a_copy_that_joins_is_opened_once_and_is_there_after_a_restart(home: Home) -> None:
    asked = JoinVoters(4, "c", "d2")
    first, again = await asyncio.gather(home.seat.join(asked), home.seat.join(asked))
    assert first == again
    assert (first.promised_epoch, home.seat.votes) == (4, False)
    home.seat.close()
    home.seat = home.reopened()
    assert home.seat.require_voter().rules.copy.promised_epoch == 4


@in_world(play, TMP_PATH, OTHERS)
async def test_no_copy_joins_that_is_meant_for_a_directory_that_was_lost(home: Home) -> None:
    with pytest.raises(InvalidVoterKey, match="broker 2 has the directory d2, not lost"):
        await home.seat.join(JoinVoters(4, "c", "lost"))
    assert home.seat.voter is None
    assert not home.data.has_metadata_log


@in_world(play, TMP_PATH, OTHERS)
async def test_a_copy_that_cannot_be_opened_does_not_join(home: Home) -> None:
    home.data.metadata.write_text("no directory")
    with pytest.raises(KafkaStorageError, match="metadata cannot be opened: "):
        await home.seat.join(JoinVoters(4, "c", "d2"))
    home.data.metadata.unlink()
    assert (await home.seat.join(JoinVoters(4, "c", "d2"))).promised_epoch == 4


@in_world(play, TMP_PATH, OTHERS)
async def test_the_voters_are_the_copys_unless_committed_metadata_is_ahead_of_it(
    home: Home,
) -> None:
    await home.seat.join(JoinVoters(1, "c", "d2"))
    append = VoterAppend(1, 0, 0, [naming(0, 1, ALL)])
    await home.seat.require_voter().append(append)
    home.seat.learned(OTHERS, 1)
    assert home.seat.voters == ALL, "it may name what is not committed yet"
    home.seat.learned(OTHERS, 2)
    assert home.seat.voters == OTHERS


@in_world(play, TMP_PATH, OTHERS)
async def test_committed_voters_are_noted_in_the_directory(home: Home) -> None:
    home.seat.learned((), 5)  # of a build that named none
    assert home.seat.voters == OTHERS
    home.seat.learned(ALL, 6)
    await noted(home, ALL)
    home.seat.learned((), 7)
    assert home.seat.voters == ALL
    home.seat.learned(OTHERS, 8)
    await noted(home, OTHERS)


@in_world(play, TMP_PATH, OTHERS)
async def test_committed_voters_are_noted_once_the_disk_has_room(
    home: Home, *, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(voter_membership, "RETRY_MS", 1)
    write, failures = home.data._write, [OSError(errno.ENOSPC, "full")] * 2

    def writing(name: str, values: dict[str, object], *, durable: bool) -> None:
        if failures:
            raise failures.pop()
        write(name, values, durable=durable)

    monkeypatch.setattr(home.data, "_write", writing)
    home.seat.learned(ALL, 6)
    await noted(home, ALL)
    assert caplog.messages == ["the voters cannot be recorded: [Errno 28] full"] * 2


@in_world(play, TMP_PATH, ALL)
async def test_a_directory_in_a_lost_voters_place_is_one_without_promises(home: Home) -> None:
    before = home.seat.is_lost  # the cluster may be new
    home.seat.learned(ALL, 1)
    assert (before, home.seat.is_lost) == (False, True)
    await home.seat.begin_anew()
    found = home.reopened()
    assert (home.seat.voter, home.seat.votes, found.votes) == (None, False, False)
    found.close()
    assert home.noted().directory_id == home.data.identity.directory_id != "d2"
    with pytest.raises(InvalidVoterKey):
        await home.seat.join(JoinVoters(4, "c", "d2"))


@in_world(play, TMP_PATH, ALL)
async def test_a_voter_that_has_promised_something_is_not_lost(home: Home) -> None:
    await home.seat.require_voter().new_epoch(NewEpoch(1, "c", founds=True))
    home.seat.learned(ALL, 1)
    assert not home.seat.is_lost


@in_world(play, TMP_PATH, OTHERS)
async def test_a_broker_that_does_not_vote_has_lost_no_vote(home: Home) -> None:
    home.data.metadata.mkdir()
    home.seat = home.reopened()
    home.seat.learned(OTHERS, 1)
    assert home.seat.require_voter().rules.is_blank
    assert not home.seat.is_lost
