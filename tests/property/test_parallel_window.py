"""The sliding window never commits unprocessed records, whatever happens in any order."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from raylog.client.cluster import TopicPartition
from raylog.client.parallel.effects import WindowSettings
from raylog.client.parallel.note import encode_note
from raylog.client.parallel.policy import Order, RetryPolicy
from raylog.wire.record import Record
from tests.worlds.client.checked_window import LOST, RAISED, REFUSED, CheckedWindow, GroupState

KEYS = [TopicPartition("t", 0), TopicPartition("t", 1)]


@st.composite
def logs(draw: st.DrawFn, records_min: int = 0) -> dict[TopicPartition, list[Record]]:
    made = {}
    for key in KEYS[: draw(st.integers(1, 2))]:
        offset, records = 0, []
        for _ in range(draw(st.integers(records_min, 40))):
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
            + ["result", "result", "fail", "fail", "lose", "time"]
            + ["write", "write", "refuse", "reject"]
            + ["commit", "commit", "crash", "drain", "lost", "assign"]
        ),
        st.integers(0, 1_000),
    ),
    min_size=20,
    max_size=80,
)


def play(checked: CheckedWindow, what: str, number: int) -> None:
    key = list(checked.log)[number % len(checked.log)]
    outcomes = {"end": None, "result": None, "fail": RAISED, "lose": LOST}
    if what in outcomes:
        if cells := sorted(checked.running):
            cell = cells[number % len(cells)]
            checked.end_run(cell, outcomes[what], has_result=what == "result")
        return
    if what in ("write", "refuse", "reject"):
        if sent := sorted(checked.delivering):
            refusal = REFUSED if what == "reject" else None
            cell = sent[number % len(sent)]
            checked.end_delivery(cell, written=what == "write", refusal=refusal)
        return
    acts: dict[str, Callable[[], None]] = {
        "fetch": lambda: checked.fetch(key, 1 + number % 9),
        "time": lambda: checked.pass_time(number),
        "commit": checked.commit,
        "crash": checked.crash,
        "drain": lambda: checked.revoke(key, drain=True),
        "lost": lambda: checked.revoke(key, drain=False),
        "assign": lambda: checked.assign(key),
        "fence": lambda: checked.fence(key),
        "hear": lambda: checked.hear(key),
    }
    acts[what]()


@given(window_settings(), logs(), steps)
def test_commits_are_safe_and_nothing_is_lost(
    chosen: WindowSettings,
    log: dict[TopicPartition, list[Record]],
    played: list[tuple[str, int]],
) -> None:
    checked = CheckedWindow(chosen, log)
    for what, number in played:
        play(checked, what, number)
        if what == "crash":
            checked.assign_all()
    checked.finish_all()


def texts_beside(key: TopicPartition, offset: int, note: str) -> st.SearchStrategy[str]:
    """Texts in the metadata of a committed offset that are no valid encoding for it."""
    elsewhere = TopicPartition("t", 7)
    return st.one_of(
        st.just(""),
        st.text(max_size=20),
        st.sampled_from(
            [
                "somebody's own words",
                encode_note(key, offset + 1, [(offset + 2, offset + 60)]),
                encode_note(elsewhere, offset, [(offset + 1, offset + 60)]),
                encode_note(key, offset, [(offset + 1, offset + 60)]).replace(":1:", ":0:"),
                encode_note(key, offset, [(offset + 1, offset + 60)]).replace(":1:", ":2:"),
                encode_note(key, offset, [(offset + 1, offset + 60)]).replace(":r:", ":b:"),
            ]
        ),
        st.integers(0, 40).map(lambda cut: note[: max(0, len(note) - 1 - cut)]),
        st.integers(0, 40).map(lambda at: note[:at] + "!" + note[at:]),
    )


def meddle(group: GroupState, key: TopicPartition, number: int, data: st.DataObject) -> None:
    """Release the partition, and let another tool commit for the group: here, or earlier."""
    owner = group.owner.get(key)
    if owner is not None and number % 2:
        owner.fence(key)
    elif owner is not None:
        owner.revoke(key, drain=True)
    if key in group.committed:
        offset, note = group.committed[key]
        text = data.draw(texts_beside(key, offset, note))
        group.committed[key] = max(0, offset - number % 3), text


def play_member(
    group: GroupState, members: list[CheckedWindow], what: str, number: int, member: int
) -> None:
    """One step of a member that can do it: the partition's owner, or one with something to end."""
    log = members[0].log
    one = members[member]
    if what in ("fetch", "commit", "drain", "lost", "fence"):
        one = group.owner.get(list(log)[number % len(log)], one)
    elif what in ("end", "result", "fail", "lose"):
        one = next((each for each in [one, *members] if each.running), one)
    elif what in ("write", "refuse", "reject"):
        one = next((each for each in [one, *members] if each.delivering), one)
    play(one, what, number)


group_steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["fetch"] * 4
            + ["end"] * 5
            + ["result", "fail", "lose", "time", "write", "write", "refuse", "reject"]
            + ["commit"] * 3
            + ["crash", "drain", "lost", "fence", "hear", "meddle", "meddle"]
            + ["assign"] * 4
        ),
        st.integers(0, 1_000),
        st.integers(0, 2),
    ),
    min_size=50,
    max_size=120,
)


@given(window_settings(), logs(records_min=20), group_steps, st.data())
def test_partitions_that_move_between_members_lose_nothing(
    chosen: WindowSettings,
    log: dict[TopicPartition, list[Record]],
    played: list[tuple[str, int, int]],
    data: st.DataObject,
) -> None:
    """Members that do not know that they lost a partition run on and try to commit.

    Whoever gets it reads the note of another member, or what another tool wrote there.
    """
    group = GroupState()
    members = [CheckedWindow(chosen, log, group) for _ in range(3)]
    for key in log:
        members[0].assign(key)
    for what, number, member in played:
        if what == "meddle":
            key = list(log)[number % len(log)]
            meddle(group, key, number // 2, data)
            members[member].assign(key)
        else:
            play_member(group, members, what, number, member)
    for one in members:
        for key in log:
            one.revoke(key, drain=False)
            one.hear(key)
    members[0].finish_all()


def test_a_front_that_hangs_stops_the_window_when_the_note_is_full_and_drops_nothing() -> None:
    key = KEYS[0]
    log = {key: [Record(offset, 0, b"ab"[offset % 2 :][:1], b"v", []) for offset in range(2_000)]}
    chosen = WindowSettings("g", cells=2, note_bytes_max=100, buffer_records=500)
    checked = CheckedWindow(chosen, log)
    checked.fetch(key, 1)
    (hanging,) = checked.running
    while True:
        checked.fetch(key, 500)
        others = [cell for cell in checked.running if cell != hanging]
        if not others:
            break
        checked.end_run(others[0], None)
    checked.commit()
    assert key in checked.paused
    assert len(checked.committed[key][1]) > chosen.note_bytes_max // 2
    finished = len(checked.done)
    assert finished > 100
    checked.crash()  # all that was noted is skipped
    checked.assign_all()
    checked.finish_all()
    assert checked.window.statistics.skipped == finished
    assert sum(runs > 1 for runs in checked.runs.values()) <= 1  # the one that hung
