"""`raylog top` on an embedded cluster."""

import asyncio
import json
import socket
import sys
from collections.abc import Iterator
from typing import NoReturn

import pytest
from textual.widgets import DataTable
from typer.testing import CliRunner

from raylog.cli.app import app
from raylog.cli.top import command, events, reader
from raylog.cli.top.command import Of
from raylog.cli.top.events import CommitsSeen, DisksSeen, Event, HangingSeen, TransactionsSeen
from raylog.cli.top.looking import period_ms
from raylog.cli.top.reader import Reader, next_of
from raylog.cli.top.screen import TopApp
from raylog.client import (
    Admin,
    ClientSettings,
    LogDir,
    NewTopic,
    Producer,
    TopicPartition,
    parse_bootstrap,
)
from raylog.client.admin.operations import AllOperations
from raylog.client.errors import RequestTimedOut
from raylog.extras import MissingExtra
from raylog.testing import EmbeddedBroker
from tests.worlds.decorators import in_loop


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """Three brokers; topic `orders` with 12 records, of which group `billing` has read 5."""
    with EmbeddedBroker(brokers=3) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topics([NewTopic("orders", 2, 3), NewTopic("copies", 1, 3)])
            admin.commit_group_offsets("billing", {TopicPartition("orders", 0): 5})
        with Producer(broker.bootstrap) as producer:
            for _ in range(12):
                producer.send("orders", b"one", partition=0)
        yield broker.bootstrap


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["top", *arguments], env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout


def look(bootstrap: str, rounds: int = 1, *, now: bool = True) -> list[Event]:
    noted = events_of(bootstrap, rounds, now=now)
    assert [one for one in noted if isinstance(one, events.PartFailed)] == []
    return noted


def events_of(bootstrap: str, rounds: int = 1, *, now: bool = True) -> list[Event]:
    noted: list[Event] = []

    async def ask() -> None:
        asking = Reader(ClientSettings(parse_bootstrap(bootstrap)), noted.append, now=now)
        for _ in range(rounds):
            await asking.look()
        await asking.close()

    asyncio.run(ask())
    return noted


def test_one_look_as_text(bootstrap: str) -> None:
    output = run("--once", "-b", bootstrap)
    assert output.startswith("Nothing is wrong.\ncluster ")
    assert "3 brokers" in output
    assert "orders" in output
    assert "billing" in output


def test_one_look_as_json(bootstrap: str) -> None:
    state = json.loads(run("--json", "-b", bootstrap))
    assert state["problems"] == []
    assert [row["state"] for row in state["brokers"]] == ["live"] * 3
    assert sum(row["leads"] for row in state["brokers"]) == state["partitions"]
    (group,) = state["groups"]
    assert (group["group"], group["state"], group["lag"]) == ("billing", "Empty", 7)
    topics = {row["topic"]: row for row in state["topics"]}
    assert topics["orders"]["end_offsets"] == 12
    assert all(0 < row["disk_free"] <= 1 for row in state["brokers"])
    assert (state["open_transactions"], state["not_known"]) == (0, {})


def test_no_cluster_is_exit_code_3() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        server = f"127.0.0.1:{taken.getsockname()[1]}"
        output = run("--once", "-b", f"{server}, {server}", code=3)
    assert "CRITICAL  no broker answers: NotConnected" in output
    assert f"-> raylog doctor -b {server},{server}  " in output, "advice names all servers"
    assert "cluster " not in output


def test_a_port_that_is_silent_is_named_while_it_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command, "_PATIENCE_S", 0.1)
    monkeypatch.setattr(reader, "_OPERATION_MS", 1_000)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        result = CliRunner().invoke(app, ["top", "--once", "-b", server])
    assert result.exit_code == 3
    assert f"asking {server}: no answer for 0 s about metadata" in result.stderr


def test_metrics_that_cannot_be_read_are_reported_with_their_address(bootstrap: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        output = run("--once", "-b", bootstrap, "--metrics", address)
    assert f"metrics not known: {address}/metrics: [Errno 111] Connection refused" in output


def test_open_transactions_and_where_they_hold_up_readers(bootstrap: str) -> None:
    with Producer(bootstrap, transactional_id="copier") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("copies", b"pending")
        producer.flush()
        noted = look(bootstrap)
        (seen,) = [one for one in noted if isinstance(one, TransactionsSeen)]
        (one,) = seen.transactions
        assert (seen.count, one.transactional_id, one.partitions) == (
            1,
            "copier",
            [TopicPartition("copies", 0)],
        )
        assert HangingSeen([]) in noted, "its coordinator will end it"
        producer.abort_transaction()


def test_more_groups_than_are_asked_for_at_once_take_turns(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"g{n}" for n in range(4)]
    with Admin(bootstrap) as admin:
        for name in names:
            admin.commit_group_offsets(name, {TopicPartition("orders", 1): 0})
        monkeypatch.setattr(reader, "GROUPS_AT_ONCE", 3)
        noted = [one for one in look(bootstrap, rounds=2) if isinstance(one, CommitsSeen)]
        admin.delete_groups(names)
    assert [sorted(one.committed) for one in noted] == [
        ["billing", "g0", "g1"],
        ["billing", "g2", "g3"],
    ]


def test_disks_and_last_stable_offsets_are_asked_for_now_and_then(bootstrap: str) -> None:
    noted = look(bootstrap, rounds=3, now=False)
    kinds = [type(one).__name__ for one in noted]
    assert (kinds.count("DisksSeen"), kinds.count("HangingSeen"), kinds.count("EndsSeen")) == (
        1,
        1,
        3,
    )


@pytest.mark.parametrize(
    ("asked", "part"), [("find_offsets", events.ENDS), ("offsets_of_groups", events.COMMITS)]
)
def test_commits_are_not_compared_with_ends_of_an_earlier_round(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, asked: str, part: str
) -> None:
    async def fail(*_: object, **__: object) -> NoReturn:
        raise RequestTimedOut("late")

    monkeypatch.setattr(reader, asked, fail)
    noted = events_of(bootstrap)
    assert [one.part for one in noted if isinstance(one, events.PartFailed)] == [part]
    assert [one for one in noted if isinstance(one, CommitsSeen)] == []


def test_a_broker_that_hangs_does_not_hide_the_disks_of_the_others(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = AllOperations.describe_log_dirs

    async def describe(
        admin: AllOperations, brokers: list[int], *, partitions: tuple[()]
    ) -> list[LogDir]:
        if brokers == [1]:
            raise RequestTimedOut("late")
        return await real(admin, brokers, partitions=partitions)

    monkeypatch.setattr(AllOperations, "describe_log_dirs", describe)
    (seen,) = [one for one in look(bootstrap) if isinstance(one, DisksSeen)]
    assert {one.broker_id for one in seen.directories} == {0, 2}


@in_loop
async def test_the_screen_shows_a_cluster(bootstrap: str) -> None:
    of = Of(bootstrap, "", ClientSettings(parse_bootstrap(bootstrap)), 1.0)
    async with TopApp(of).run_test(size=(80, 24)) as pilot:
        grid = pilot.app.query_one(DataTable)
        async with asyncio.timeout(30):
            while grid.row_count < 3:
                await pilot.pause(0.1)
        assert [str(grid.get_row_at(i)[1]) for i in range(3)] == ["live"] * 3


def test_without_textual_the_extra_is_named(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [one for one in sys.modules if one.startswith("raylog.cli.top.screen")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.setitem(sys.modules, "textual.app", None)
    with pytest.raises(MissingExtra, match=r"raylog top needs the package textual.*raylog\[cli\]"):
        run("-b", bootstrap)


def test_next_of_names_goes_round() -> None:
    assert next_of("abc", "", 5) == ["a", "b", "c"]
    assert next_of("abcde", "", 2) == ["a", "b"]
    assert next_of("abcde", "b", 2) == ["c", "d"]
    assert next_of("abcde", "d", 2) == ["e", "a"]
    assert next_of("abcde", "zzz", 2) == ["a", "b"]


def test_a_large_cluster_is_asked_less_often() -> None:
    assert period_ms(3_000, 100) == 3_000
    assert period_ms(3_000, 2_000) == 8_000
