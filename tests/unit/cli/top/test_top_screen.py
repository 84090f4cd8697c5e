"""The terminal of `raylog top`, driven by textual's pilot, with addresses where nothing listens."""

import asyncio
import re
import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Static, Tab

from raylog.cli.top.command import Of
from raylog.cli.top.events import CLUSTER, Event, GroupsSeen, MinIsrSeen, PartAsked
from raylog.cli.top.reader import now_ms
from raylog.cli.top.screen import Learned, Reading, TopApp
from raylog.client import ClientSettings
from raylog.client.admin.groups import GroupListing
from tests.support.top_clusters import cluster, ends, partition

ADDRESS = "127.0.0.1"


@pytest.fixture
def asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is learned comes from the test."""

    async def nothing(_: object) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr("raylog.cli.top.reader.Reader.look", nothing)


@pytest.fixture
def of() -> Iterator[Of]:
    """A port that is taken, so that nobody else listens there, and that refuses connections."""
    with socket.socket() as taken:
        taken.bind((ADDRESS, 0))
        port = taken.getsockname()[1]
        yield Of(f"{ADDRESS}:{port}", "", ClientSettings(((ADDRESS, port),)), 60.0)


WELL = cluster(
    *((topic, partition(i, leader=i)) for topic in ("alpha", "beta") for i in range(3)),
    at_ms=1e15,
)
ILL = cluster(
    ("alpha", partition(0, leader=-1, replicas=(1,), isr=(1,))),
    ("beta", partition(0, isr=(0,))),
    live=(0, 2),
    at_ms=1e15,
)


async def show(app: TopApp, pilot: Pilot[object], *events: Event) -> None:
    for event in events:
        app.post_message(Learned(event))
    await drawn(app, pilot)


async def drawn(app: TopApp, pilot: Pilot[object]) -> None:
    """Wait until all that was learned is on the screen."""
    await pilot.pause()
    async with asyncio.timeout(20):
        while app._is_old:
            await pilot.pause(0.05)


def text(app: TopApp, part: str) -> str:
    return str(app.query_one(f"#{part}", Static).content)


def table(app: TopApp) -> list[list[str]]:
    grid: DataTable[object] = app.query_one(DataTable)
    return [[str(cell) for cell in grid.get_row_at(i)] for i in range(grid.row_count)]


def drive(of: Of, steps: object, size: tuple[int, int] = (80, 24)) -> TopApp:
    app = TopApp(of)

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await steps(app, pilot)  # type: ignore[operator]

    asyncio.run(run())
    return app


@pytest.mark.usefixtures("asks_nobody")
def test_problems_are_summarized_above_brokers_and_listed_under_problems(of: Of) -> None:
    async def steps(app: TopApp, pilot: Pilot[object]) -> None:
        await show(app, pilot, ILL, MinIsrSeen({"beta": 2}), ends(1, beta=[5]))
        shown = text(app, "verdict")
        assert shown.startswith("4 problems: 2 critical, 2 serious\nCRITICAL 1 partition offline")
        assert "2 more: press 1" in shown
        assert [row[:2] for row in table(app)] == [["0", "live"], ["1", "away"], ["2", "live"]]
        assert text(app, "summary").startswith("2 brokers (1 away), 2 topics, 2 partitions")
        await pilot.press("1")
        await pilot.pause()
        assert text(app, "verdict") == "4 problems: 2 critical, 2 serious"
        assert [row[0] for row in table(app)] == ["CRITICAL", "CRITICAL", "SERIOUS", "SERIOUS"]
        await pilot.press("down", "enter")
        await pilot.pause()
        assert isinstance(app.screen, Reading)
        assert "beta-0" in app.screen.text.splitlines()
        await pilot.press("escape")
        assert not isinstance(app.screen, Reading)

    drive(of, steps)


def test_nobody_answers_and_it_says_so_and_goes_on(of: Of) -> None:
    async def steps(app: TopApp, pilot: Pilot[object]) -> None:
        async with asyncio.timeout(20):
            while not text(app, "verdict"):
                await pilot.pause(0.1)
        assert "CRITICAL no broker answers: NotConnected" in text(app, "verdict")
        await show(app, pilot, WELL)
        assert text(app, "verdict") == "Nothing is wrong."

    drive(of, steps)


@pytest.mark.usefixtures("asks_nobody")
def test_sorting_and_filtering(of: Of) -> None:
    async def steps(app: TopApp, pilot: Pilot[object]) -> None:
        await show(app, pilot, WELL, ends(0, alpha=[0], beta=[0]), ends(1e3, alpha=[9], beta=[5]))
        await pilot.press("3")
        assert [row[0] for row in table(app)] == ["alpha", "beta"]
        await pilot.press("S")
        assert [row[0] for row in table(app)] == ["beta", "alpha"]
        await pilot.press("slash", *"LPH", "enter")
        assert [row[0] for row in table(app)] == ["alpha"]
        assert text(app, "note") == "1 of 2 topics, 1 with 'LPH' (Esc: all)"
        await pilot.press("s")
        assert app.choices["topics"].order == "end_offsets"
        await pilot.press("escape")
        assert len(table(app)) == 2
        assert not app.query_one("#find", Input).has_class("asked")

    drive(of, steps)


@pytest.mark.long
@pytest.mark.usefixtures("asks_nobody")
def test_thousands_of_partitions_show_some_and_find_the_others(of: Of) -> None:
    async def steps(app: TopApp, pilot: Pilot[object]) -> None:
        many = cluster(*(("t", partition(i)) for i in range(3_000)), at_ms=1e15)
        await show(app, pilot, many)
        await pilot.press("4")
        assert len(table(app)) == 200
        assert text(app, "note") == "200 of 3,000 partitions, / finds the others"
        await pilot.press("slash", *"t-2999")
        assert [row[0] for row in table(app)] == ["t-2999"]

    drive(of, steps)


@pytest.mark.usefixtures("asks_nobody")
def test_the_chosen_row_stays_chosen_when_others_come(of: Of) -> None:
    async def steps(app: TopApp, pilot: Pilot[object]) -> None:
        await show(app, pilot, WELL, ends(0, alpha=[0], beta=[0]), ends(1e3, alpha=[9], beta=[5]))
        await pilot.press("3", "down")
        await show(app, pilot, ends(2e3, alpha=[9], beta=[50]))
        assert [row[0] for row in table(app)] == ["beta", "alpha"]
        assert app.query_one(DataTable).cursor_row == 0

    drive(of, steps)


@pytest.mark.usefixtures("asks_nobody")
def test_names_from_outside_cannot_command_the_terminal(of: Of) -> None:
    async def steps(app: TopApp, pilot: Pilot[object]) -> None:
        name = "[red]\x1b]0;x\x07"
        await show(app, pilot, WELL, GroupsSeen(0, [GroupListing(name, "", "", "Empty", 0)]))
        await pilot.press("5")
        assert table(app)[0][0] == "[red]\\x1b]0;x\\x07"
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, Reading)
        assert "\x1b" not in app.screen.text

    drive(of, steps)


@pytest.mark.usefixtures("asks_nobody")
def test_pause_interval_help_and_quit(of: Of) -> None:
    async def steps(app: TopApp, pilot: Pilot[object]) -> None:
        await show(app, pilot, WELL)
        assert "every 1 min" in text(app, "head")
        await pilot.press("p")
        assert "PAUSED" in text(app, "head")
        await pilot.press("p", "plus")
        assert "every 30 s" in text(app, "head")
        await pilot.press("minus", "minus")
        assert "every 1 min" in text(app, "head")
        await pilot.press("tab")
        assert text(app, "note") == "2 of 2 topics"
        await pilot.press("question_mark")
        await pilot.pause()
        assert isinstance(app.screen, Reading)
        assert "1 to 6, Tab" in app.screen.text
        await pilot.press("escape", "q")

    assert drive(of, steps).return_value is None


def is_reading(app: TopApp) -> bool:
    """Whether a text is over the tables."""
    return isinstance(app.screen, Reading)


def reading(app: TopApp) -> str:
    """The text that is over the tables."""
    assert isinstance(app.screen, Reading)
    return app.screen.text


@pytest.mark.usefixtures("asks_nobody")
def test_keys_over_a_text_go_to_a_table_or_to_the_help(of: Of) -> None:
    async def steps(app: TopApp, pilot: Pilot[object]) -> None:
        await show(app, pilot, WELL)
        await pilot.press("enter")
        await pilot.pause()
        assert is_reading(app)
        await pilot.press("question_mark")
        await pilot.pause()
        assert "1 to 6, Tab" in reading(app)
        await pilot.press("3")
        await pilot.pause()
        assert not is_reading(app)
        assert text(app, "note") == "2 of 2 topics"
        await pilot.press("question_mark", "question_mark")
        await pilot.pause()
        assert not is_reading(app)

    drive(of, steps)


@pytest.mark.usefixtures("asks_nobody")
def test_a_screen_whose_answers_are_overdue_does_not_call_brokers_live(of: Of) -> None:
    async def steps(app: TopApp, pilot: Pilot[object]) -> None:
        long_ago = replace(WELL, at_ms=now_ms() - 200_000, unix_s=1.0)
        await show(app, pilot, long_ago, PartAsked(CLUSTER, now_ms()))
        app._tick()
        await drawn(app, pilot)
        assert "CRITICAL state unknown since " in text(app, "verdict")
        assert "about metadata" in text(app, "verdict")
        assert [row[1] for row in table(app)] == ["unknown"] * 3
        assert text(app, "summary").startswith("at ")

    drive(of, steps)


@pytest.mark.usefixtures("asks_nobody")
def test_pending_question_is_shown_before_the_first_answer(of: Of) -> None:
    async def steps(app: TopApp, pilot: Pilot[object]) -> None:
        await show(app, pilot, PartAsked(CLUSTER, now_ms() - 4_000))
        shown = text(app, "summary")
        assert re.match(rf"asking {of.bootstrap}: no answer for \d+ s about metadata", shown)

    drive(of, steps)


@pytest.mark.usefixtures("asks_nobody")
def test_a_small_screen_marks_what_it_leaves_out(of: Of) -> None:
    async def steps(app: TopApp, pilot: Pilot[object]) -> None:
        await show(app, pilot, ILL, MinIsrSeen({"beta": 2}), ends(1, beta=[5]))
        shown = text(app, "verdict").splitlines()
        assert len(shown) <= 4
        assert shown[-1] == "3 more: press 1"
        rows = [str(app.query_one(f"#{name}", Tab).label) for name in ("brokers", "topics")]
        assert rows == ["2 brokers", "3"]
        for part in ("head", "summary", "note"):
            assert app.query_one(f"#{part}").styles.text_overflow == "ellipsis"

    drive(of, steps, (40, 12))


@pytest.mark.long
@pytest.mark.parametrize("size", [(80, 24), (40, 10), (200, 60), (20, 5)])
@pytest.mark.usefixtures("asks_nobody")
def test_any_size(of: Of, size: tuple[int, int]) -> None:
    async def steps(app: TopApp, pilot: Pilot[object]) -> None:
        await show(app, pilot, ILL)
        for key in "123456":
            await pilot.press(key)
        await pilot.resize_terminal(60, 15)
        await drawn(app, pilot)
        assert app.size.width == 60

    drive(of, steps, size)


def test_a_bug_in_the_questions_ends_it_with_that_failure(
    of: Of, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_: object) -> None:
        raise AssertionError("a bug")

    monkeypatch.setattr("raylog.cli.top.reader.Reader.look", broken)

    async def steps(app: TopApp, pilot: Pilot[object]) -> None:
        async with asyncio.timeout(20):
            while app.return_value is None:
                await pilot.pause(0.05)

    failure = drive(of, steps).return_value
    assert isinstance(failure, AssertionError)
