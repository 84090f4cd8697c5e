"""One process of a broker cleans at a time; the one with the dirtiest log is first."""

from raylog.actors.broker.rules.cleaning_turns import SILENT_MS, CleaningTurns


def test_one_cleans_at_a_time() -> None:
    turns = CleaningTurns()
    assert turns.ask("a", 0.6, 0)
    assert not turns.ask("b", 0.9, 100)
    assert turns.ask("a", 0.6, 1_000)
    turns.end("a")
    assert turns.ask("b", 0.9, 1_100)


def test_the_dirtiest_is_next() -> None:
    turns = CleaningTurns()
    assert turns.ask("a", 0.6, 0)
    assert not turns.ask("b", 0.7, 0)
    assert not turns.ask("c", 0.9, 0)
    turns.end("a")
    assert not turns.ask("a", 0.8, 10)
    assert not turns.ask("b", 0.7, 20)
    assert turns.ask("c", 0.9, 30)
    turns.end("c")
    assert turns.ask("a", 0.8, 40)


def test_equally_dirty_logs_do_not_wait_for_each_other() -> None:
    turns = CleaningTurns()
    assert turns.ask("a", 0.6, 0)
    assert not turns.ask("b", 0.6, 0)
    turns.end("a")
    assert not turns.ask("a", 0.5, 10)
    assert turns.ask("b", 0.6, 20)


def test_silent_process_loses_its_turn() -> None:
    turns = CleaningTurns()
    assert turns.ask("a", 0.6, 0)
    assert not turns.ask("b", 0.9, 0)
    assert not turns.ask("c", 0.5, SILENT_MS)
    assert turns.ask("c", 0.5, SILENT_MS + 1)
    assert not turns.ask("a", 1.0, SILENT_MS + 2)
