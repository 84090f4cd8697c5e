"""Commit safety of the sliding window, whatever happens in whatever order."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.client.cluster import TopicPartition
from raylog.client.parallel.effects import WindowSettings
from raylog.client.parallel.policy import Order, RetryPolicy
from raylog.wire.record import Record
from tests.support.window_game import LOST, RAISED, WindowGame

KEYS = [TopicPartition("t", 0), TopicPartition("t", 1)]


@st.composite
def logs(draw: st.DrawFn) -> dict[TopicPartition, list[Record]]:
    made = {}
    for key in KEYS[: draw(st.integers(1, 2))]:
        offset, records = 0, []
        for _ in range(draw(st.integers(0, 40))):
            offset += draw(st.sampled_from([1, 1, 1, 1, 2, 50]))
            named = draw(st.sampled_from([b"a", b"b", b"c", None]))
            records.append(Record(offset, 0, named, b"v", []))
        made[key] = records
    return made


@st.composite
def window_settings(draw: st.DrawFn) -> WindowSettings:
    return WindowSettings(
        "g",
        cells=draw(st.integers(1, 6)),
        batch_size=draw(st.sampled_from([1, 1, 3])),
        order=draw(st.sampled_from(list(Order))),
        retry=RetryPolicy(
            attempts=draw(st.integers(1, 3)),
            backoff_ms=10,
            stall_timeout_ms=draw(st.sampled_from([None, 500.0])),
        ),
        buffer_records=draw(st.sampled_from([4, 20, 1000])),
        note_bytes_max=draw(st.sampled_from([25, 30, 4096])),
    )


steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["fetch"] * 3
            + ["end"] * 5
            + ["fail", "fail", "lose", "write", "refuse", "time"]
            + ["commit", "commit", "crash", "drain", "lost", "assign"]
        ),
        st.integers(0, 1_000),
    ),
    max_size=80,
)


def play(game: WindowGame, what: str, number: int) -> None:
    key = list(game.log)[number % len(game.log)]
    outcomes = {"end": None, "fail": RAISED, "lose": LOST}
    if what in outcomes:
        if cells := sorted(game.running):
            game.end_run(cells[number % len(cells)], outcomes[what])
        return
    if what in ("write", "refuse"):
        if sent := sorted(game.delivering):
            game.end_delivery(sent[number % len(sent)], written=what == "write")
        return
    acts: dict[str, Callable[[], None]] = {
        "fetch": lambda: game.fetch(key, 1 + number % 9),
        "time": lambda: game.pass_time(number),
        "commit": game.commit,
        "crash": game.crash,
        "drain": lambda: game.revoke(key, drain=True),
        "lost": lambda: game.revoke(key, drain=False),
        "assign": lambda: game.assign(key),
    }
    acts[what]()


@given(window_settings(), logs(), steps)
@settings(max_examples=150)
def test_commits_are_safe_and_nothing_is_lost(
    chosen: WindowSettings,
    log: dict[TopicPartition, list[Record]],
    played: list[tuple[str, int]],
) -> None:
    game = WindowGame(chosen, log)
    for what, number in played:
        play(game, what, number)
    game.finish_all()


def test_a_front_that_hangs_stops_the_window_when_the_note_is_full_and_drops_nothing() -> None:
    key = KEYS[0]
    log = {key: [Record(offset, 0, b"ab"[offset % 2 :][:1], b"v", []) for offset in range(2_000)]}
    chosen = WindowSettings("g", cells=2, note_bytes_max=100, buffer_records=500)
    game = WindowGame(chosen, log)
    game.fetch(key, 1)
    (hanging,) = game.running
    while True:
        game.fetch(key, 500)
        others = [cell for cell in game.running if cell != hanging]
        if not others:
            break
        game.end_run(others[0], None)
    game.commit()
    assert key in game.paused
    assert len(game.committed[key][1]) > chosen.note_bytes_max // 2
    finished = len(game.done)
    assert finished > 100
    game.crash()  # all that was noted is skipped
    game.finish_all()
    assert game.window.statistics.skipped == finished
    assert sum(runs > 1 for runs in game.runs.values()) <= 1  # the one that hung
