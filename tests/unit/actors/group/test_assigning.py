"""The coordinator runs small known assignors itself, and all others in separate processes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar, cast

import pytest

from raylog.actors.group.assigning import (
    WORKERS_MAX,
    Assigning,
    Assignment,
    AssignmentUnderWay,
    AssignTask,
)
from raylog.actors.group.assignor_processes import AssignorProcesses
from raylog.actors.runtime.base import Runtime
from raylog.actors.runtime.loop import LoopRuntime
from raylog.assignors.api import ENTRY_POINT_GROUP, Member, MemberAssignment, PluginError, Topic
from raylog.assignors.checking import InvalidAssignment
from tests.support.assigning import members, short, topics
from tests.support.plugins import installed
from tests.support.ray_clusters import wait_until
from tests.worlds.decorators import in_world

T = TypeVar("T")
SMALL = topics(t0=3)
LARGE = topics(t0=5_000)
FOUND = {"C0": MemberAssignment({"t0": [0]})}


def started(assigning: Assigning, group_id: str = "g", name: str = "odd") -> None:
    with pytest.raises(AssignmentUnderWay, match=f"assignor '{name}' is at work"):
        assigning.assign(group_id, name, members(2, SMALL), SMALL)


def test_a_small_group_is_assigned_in_place_by_raylogs_own() -> None:
    assigning = Assigning()
    found = assigning.assign("g", "range", members(2, SMALL), SMALL)
    assert short(found) == {"C0": "t0p0 t0p1", "C1": "t0p2"}
    assert assigning.take_tasks() == []


def test_one_of_raylogs_own_that_raises_has_failed_as_any_plugin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def assign(*_: object) -> None:
        raise AssertionError("not so")

    monkeypatch.setattr("raylog.assignors.range.RangeAssignor.assign", assign)
    with pytest.raises(PluginError, match="'range' raised AssertionError: not so"):
        Assigning().assign("g", "range", members(2, SMALL), SMALL)


def test_raylogs_own_know_no_racks_on_the_server_as_kafkas() -> None:
    topic = Topic("t0", 2, (frozenset("a"), frozenset("b")))
    there = [
        Member("C0", frozenset({"t0"}), rack="b"),
        Member("C1", frozenset({"t0"}), rack="a"),
    ]
    found = Assigning().assign("g", "range", there, {"t0": topic})
    assert short(found) == {"C0": "t0p0", "C1": "t0p1"}


def test_a_plugin_gets_racks() -> None:
    topic = Topic("t0", 1, (frozenset("a"),))
    assigning = Assigning()
    with pytest.raises(AssignmentUnderWay):
        assigning.assign("g", "odd", members(1, SMALL), {"t0": topic})
    [task] = assigning.take_tasks()
    assert task.topics == {"t0": topic}


def test_a_large_group_is_assigned_elsewhere() -> None:
    assigning = Assigning()
    with pytest.raises(AssignmentUnderWay):
        assigning.assign("g", "range", members(2, LARGE), LARGE)
    assert [task.name for task in assigning.take_tasks()] == ["range"]


def test_a_result_is_returned_once_when_the_group_asks_again() -> None:
    assigning = Assigning(timeout_ms=70)
    started(assigning)
    started(assigning)
    [task] = assigning.take_tasks()
    assert task == AssignTask("g", "odd", tuple(members(2, SMALL)), SMALL, 70)
    assert assigning.finished(task, FOUND)
    assert assigning.assign("g", "odd", members(2, SMALL), SMALL) == FOUND
    started(assigning)


def test_a_failure_is_raised_once_when_the_group_asks_again() -> None:
    assigning = Assigning()
    started(assigning)
    [task] = assigning.take_tasks()
    assert assigning.finished(task, InvalidAssignment("nonsense"))
    with pytest.raises(InvalidAssignment, match="nonsense"):
        assigning.assign("g", "odd", members(2, SMALL), SMALL)
    started(assigning)


def test_a_result_for_members_that_have_changed_is_dropped() -> None:
    assigning = Assigning()
    started(assigning)
    [task] = assigning.take_tasks()
    assigning.finished(task, FOUND)
    with pytest.raises(AssignmentUnderWay):
        assigning.assign("g", "odd", members(3, SMALL), SMALL)
    [again] = assigning.take_tasks()
    assert len(again.members) == 3


def test_a_group_that_is_gone_is_not_called_back() -> None:
    assigning = Assigning()
    started(assigning)
    [task] = assigning.take_tasks()
    assigning.forget("g")
    assert not assigning.finished(task, FOUND)
    started(assigning, "h")
    assigning.forget("h")
    assert assigning.take_tasks() == []


def test_processes_are_bounded_and_groups_take_turns() -> None:
    assigning = Assigning()
    for index in range(WORKERS_MAX + 1):
        started(assigning, f"g{index}")
    tasks = assigning.take_tasks()
    assert len(tasks) == WORKERS_MAX
    assert assigning.take_tasks() == []
    assigning.finished(tasks[0], FOUND)
    assert [task.group_id for task in assigning.take_tasks()] == [f"g{WORKERS_MAX}"]


SOURCE = """
import os, sys, time
from raylog.assignors.api import Assignor, MemberAssignment

class Odd(Assignor):
    name = "odd"
    def assign(self, members, topics):
        return getattr(self, members[0].user_data.decode())(members)
    def to_first(self, members):
        print("noise on standard output")
        return {members[0].member_id: MemberAssignment({"t0": [1, 0]}, b"hello")}
    def hangs(self, members):
        time.sleep(60)
    def spins(self, members):
        while True:
            pass
    def raises(self, members):
        raise ValueError("seven")
    def exits(self, members):
        sys.exit(0)
    def dies(self, members):
        os.abort()
    def scribbles(self, members):
        for fd in range(3, 20):
            try:
                os.write(fd, b"7")
            except OSError:
                pass
        os._exit(0)
    def eats_memory(self, members):
        return [bytes(1 << 28) for _ in range(64)]
    def gives_a_list(self, members):
        return [1]
    def gives_pairs(self, members):
        return {members[0].member_id: [("t0", 0)]}
    def gives_text(self, members):
        return {members[0].member_id: MemberAssignment({"t0": ["0"]})}
    def gives_twice(self, members):
        return {member.member_id: MemberAssignment({"t0": [0]}) for member in members}
    def to_a_stranger(self, members):
        return {"who": MemberAssignment({"t0": [0]})}
"""


def run(task: AssignTask) -> Assignment | PluginError:
    async def in_a_loop(processes: AssignorProcesses) -> Assignment | PluginError:
        return await processes.run(task)

    return with_processes(in_a_loop)


def with_processes(test: Callable[[AssignorProcesses], Awaitable[T]]) -> T:
    async def in_a_loop() -> T:
        failures: list[BaseException] = []
        runtime = LoopRuntime("test", failures.append)
        processes = AssignorProcesses(cast("Runtime", runtime))
        try:
            return await test(processes)
        finally:
            assert not processes._processes._running
            runtime.end()
            assert not failures

    return asyncio.run(in_a_loop())


def task(what: str, timeout_ms: int = 20_000) -> AssignTask:
    subscribed = frozenset(SMALL)
    there = (Member("C0", subscribed, user_data=what.encode()), Member("C1", subscribed))
    return AssignTask("g", "odd", there, SMALL, timeout_ms)


@pytest.fixture
def odd(tmp_path: Path) -> Iterator[None]:
    with installed(tmp_path, ENTRY_POINT_GROUP, SOURCE, {"odd": "Odd"}):
        yield


@pytest.mark.usefixtures("odd")
def test_a_plugin_runs_in_a_process_and_may_print() -> None:
    found = run(task("to_first"))
    assert found == {"C0": MemberAssignment({"t0": [0, 1]}, b"hello")}


@pytest.mark.usefixtures("odd")
@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("raises", "assignor 'odd' raised ValueError: seven"),
        ("exits", "raised SystemExit: 0"),
        ("dies", "it ended with code -6"),
        ("scribbles", "it ended with code 0"),
        ("eats_memory", "raised MemoryError"),
        ("gives_a_list", "returned list instead of a dict"),
        ("gives_pairs", "returned str: list instead of str: MemberAssignment"),
        ("gives_text", "returned str as a partition's number"),
        ("gives_twice", "gives t0-0 to both 'C0' and 'C1'"),
        ("to_a_stranger", "gives to unknown member 'who'"),
        ("missing", "raised AttributeError"),
    ],
)
def test_a_plugin_that_misbehaves_is_an_error_with_a_clear_text(what: str, text: str) -> None:
    failure = run(task(what))
    assert isinstance(failure, InvalidAssignment)
    assert text in str(failure)
    assert "'odd'" in str(failure)


@pytest.mark.usefixtures("odd")
@pytest.mark.parametrize("what", ["hangs", "spins"])
def test_a_plugin_that_does_not_end_is_killed(what: str) -> None:
    failure = run(task(what, timeout_ms=1_500))  # which would not return otherwise
    assert str(failure) == "assignor 'odd' did not end within 1500 ms"


@pytest.mark.usefixtures("odd")
def test_where_no_process_can_be_started_the_task_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def popen(*_: object, **_more: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("subprocess.Popen", popen)
    failure = run(task("to_first"))
    assert isinstance(failure, InvalidAssignment)
    assert "'odd': no process can be started: [Errno 11] Resource temporarily" in str(failure)


@pytest.mark.usefixtures("odd")
@in_world(with_processes)
async def test_closing_ends_what_runs(processes: AssignorProcesses) -> None:
    hanging = asyncio.ensure_future(processes.run(task("hangs")))
    running = processes._processes._running
    await asyncio.to_thread(wait_until, lambda: bool(running), "a process", 20)
    processes.close()
    assert isinstance(await hanging, InvalidAssignment)
    assert "this one is stopping" in str(await processes.run(task("to_first")))


def test_an_assignor_that_is_not_installed_is_an_error() -> None:
    failure = run(task("to_first"))
    assert isinstance(failure, PluginError)
    assert "no assignor 'odd' is installed" in str(failure)


def test_a_large_group_of_raylogs_own_in_a_process() -> None:
    there = tuple(members(2, LARGE))
    found = run(AssignTask("g", "uniform", there, LARGE, 20_000))
    assert isinstance(found, dict)
    assert [len(each.partitions["t0"]) for each in found.values()] == [2_500, 2_500]
