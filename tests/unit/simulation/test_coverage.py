"""Branches are counted by observing calls, and only while a simulation is watched."""

from __future__ import annotations

import asyncio

import pytest

from raylog.simulation.coverage import Branch, Coverage


class Door:
    """An object with functions of every kind."""

    def __init__(self) -> None:
        self.opened = 0

    def open(self, key: str) -> bool:
        if key == "broken":
            raise ValueError(key)
        self.opened += 1
        return key == "right"

    async def knock(self, times: int) -> int:
        if times < 0:
            raise ValueError(times)
        return times

    @staticmethod
    def fits(key: str) -> bool:
        return key == "right"


BRANCHES = (
    Branch("opened", Door, "open", lambda opens, _: opens),
    Branch("kept shut", Door, "open", lambda opens, _: not opens),
    Branch("broke", Door, "open", lambda _, args: args[1] == "broken", refused=ValueError),
    Branch("was new", Door, "open", lambda _, args: args[0].opened == 0, before=True),
    Branch("never broke so", Door, "open", refused=KeyError),
    Branch("knocked twice", Door, "knock", lambda times, _: times == 2),
    Branch("could not knock", Door, "knock", refused=ValueError),
    Branch("fitted", Door, "fits", lambda fits, _: fits),
)


def test_calls_are_counted_by_result_arguments_and_refusal() -> None:
    coverage, door = Coverage(BRANCHES), Door()
    with coverage.watching():
        assert door.open("right")
        assert not door.open("wrong")
        with pytest.raises(ValueError, match="broken"):
            door.open("broken")
        assert asyncio.run(door.knock(2)) == 2
        with pytest.raises(ValueError, match="-1"):
            asyncio.run(door.knock(-1))
        assert Door.fits("right")
        assert not door.fits("wrong")
    assert coverage.counts == {
        "opened": 1,
        "kept shut": 1,
        "broke": 1,
        "was new": 1,
        "never broke so": 0,
        "knocked twice": 1,
        "could not knock": 1,
        "fitted": 1,
    }


def test_nothing_is_counted_or_left_behind_afterwards() -> None:
    original = vars(Door)["open"], vars(Door)["fits"]
    coverage = Coverage(BRANCHES)
    with coverage.watching():
        pass
    Door().open("right")
    assert (vars(Door)["open"], vars(Door)["fits"]) == original
    assert not any(coverage.counts.values())


def test_a_name_that_is_no_more_is_an_error() -> None:
    with pytest.raises(AttributeError), Coverage([Branch("x", Door, "closed")]).watching():
        pass
