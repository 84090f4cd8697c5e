"""Members of a consumer group: processes that a test starts, disturbs and inspects."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bench import jars
from raylog.wire.messages.find_coordinator import FindCoordinatorRequest
from raylog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.support.ray_clusters import wait_until
from tests.support.wire_client import WireClient

END_S = 20.0
"""A member that is asked to leave ends within this time."""
_CONSOLE_LINE = re.compile(rb"Partition:(\d+)\s+Offset:(\d+)\s")
_NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class Span:
    """A time in which a member owned a partition; `until` is None while it still does."""

    member: str
    partition: int
    since: float
    until: float | None


class Member:
    """A process in a group. Its output so far can be read at any time."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name = name
        self.lines: list[dict[str, Any]] = []
        self.asleep: list[list[float]] = []
        """When it was stopped, as [from, to]; `to` is infinite while it is stopped."""
        self.ended_at: float | None = None
        self.started_at = time.monotonic()
        self.complaints: list[bytes] = []
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
        self._reader = threading.Thread(target=self._read, name=name, daemon=True)
        self._reader.start()
        self._complaints = threading.Thread(target=self._drain, name=f"{name} errors", daemon=True)
        self._complaints.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith(b"\n"):  # else it was killed while it wrote
                self.lines.append(self.line_of(line))

    def _drain(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.complaints.append(line)

    def line_of(self, line: bytes) -> dict[str, Any]:
        """Parse one line of output."""
        said: dict[str, Any] = json.loads(line)
        return said

    # ---- actions -------------------------------------------------------------------------

    def kill(self) -> float:
        """Kill the process with SIGKILL; return the time."""
        self._process.kill()
        return self._ended()

    def leave(self) -> float:
        """Make the member leave and end; return when it was asked."""
        asked = time.monotonic()
        self._process.terminate()
        self._ended()
        return asked

    def _ended(self) -> float:
        self._process.wait(END_S)
        self.ended_at = time.monotonic()
        self._reader.join(END_S)
        return self.ended_at

    def stand_still(self) -> None:
        """Stop the process with SIGSTOP."""
        os.kill(self._process.pid, signal.SIGSTOP)
        self.asleep.append([time.monotonic(), float("inf")])

    def go_on(self) -> float:
        """Continue the stopped process; return the time."""
        now = time.monotonic()
        os.kill(self._process.pid, signal.SIGCONT)
        self.asleep[-1][1] = now
        return now

    def end(self) -> None:
        """End the process, whatever its state."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
        self._reader.join(END_S)
        self._complaints.join(END_S)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._process.stdout.close()
        self._process.stderr.close()

    def is_running(self) -> bool:
        """Return whether the process is running."""
        return self._process.poll() is None

    def last_words(self) -> str:
        """Return the end of its output, for failure reports."""
        lines = [json.dumps(line)[:200] for line in self.lines[-5:]]
        complaints = b"".join(self.complaints[-20:]).decode(errors="replace")
        return "\n".join([f"{self.name}: {self._process.poll()}", *lines, complaints])

    # ---- its reports ---------------------------------------------------------------------

    def spans(self) -> list[Span]:
        """Return when it owned which partition, as it reported."""
        open_since: dict[int, float] = {}
        found = []
        for line in list(self.lines):
            if line["what"] == "assigned":
                open_since.update(dict.fromkeys(line["partitions"], line["t"]))
            elif line["what"] == "revoked":
                found += [
                    Span(self.name, partition, open_since.pop(partition), line["t"])
                    for partition in line["partitions"]
                    if partition in open_since
                ]
        still = [Span(self.name, p, since, self.ended_at) for p, since in open_since.items()]
        return found + still

    def owned(self) -> set[int]:
        """Return the partitions it owns now; none once it has ended."""
        return {span.partition for span in self.spans() if span.until is None}

    def first_work_at(self) -> float | None:
        """Return when it first got a partition."""
        return min((span.since for span in self.spans()), default=None)

    def subscribed_at(self) -> float:
        """Return when it subscribed."""
        said = [line["t"] for line in list(self.lines) if line["what"] == "subscribed"]
        return said[0] if said else self.started_at

    def read(self) -> dict[int, list[int]]:
        """Return the offsets it processed by partition, in order."""
        found: dict[int, list[int]] = {}
        for line in list(self.lines):
            for partition, offsets in line.get("offsets", {}).items():
                found.setdefault(int(partition), []).extend(offsets)
        return found


class ConsoleMember(Member):
    """Java's console consumer. It prints records only, so its ownership is not known."""

    def line_of(self, line: bytes) -> dict[str, Any]:
        """Parse a printed record."""
        found = _CONSOLE_LINE.match(line)
        assert found is not None, line
        partition, offset = map(int, found.groups())
        return {
            "t": time.monotonic(),
            "what": "read",
            "partitions": [partition],
            "offsets": {partition: [offset]},
        }

    def spans(self) -> list[Span]:
        """Return nothing: records do not tell how long it owned a partition."""
        return []

    def first_work_at(self) -> float | None:
        """Return when it read its first record."""
        return self.lines[0]["t"] if self.lines else None


def start_member(
    kind: str, name: str, bootstrap: str, topic: str, group: str, session_ms: int
) -> Member:
    """Start a member; `kind` is one of `group_member`, or `java`."""
    if kind == "java":
        return ConsoleMember(name, _console(bootstrap, topic, group, session_ms))
    module = [sys.executable, "-m", "tests.support.member_process"]
    return Member(name, [*module, kind, bootstrap, topic, group, str(session_ms)])


def _console(bootstrap: str, topic: str, group: str, session_ms: int) -> list[str]:
    settings = {
        "session.timeout.ms": session_ms,
        "heartbeat.interval.ms": session_ms // 5,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 300,
    }
    properties = ("print.partition", "print.offset")
    return jars.fetch().command(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--group", group),
        *(w for k, v in settings.items() for w in ("--command-property", f"{k}={v}")),
        *(w for one in properties for w in ("--formatter-property", f"{one}=true")),
        heap="256M",
    )


@dataclass(slots=True)
class CommitWatcher:
    """Polls a group's committed offsets and records those that go back."""

    bootstrap: str
    group: str
    committed: dict[int, int] = field(default_factory=dict)
    regressions: list[str] = field(default_factory=list)
    looks: int = 0
    _ending: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> CommitWatcher:
        """Start polling."""
        self._thread = threading.Thread(target=self._watch, name="commits", daemon=True)
        self._thread.start()
        return self

    def finish(self) -> None:
        """Stop polling."""
        self._ending.set()
        assert self._thread is not None
        self._thread.join(END_S)

    def _watch(self) -> None:
        while not self._ending.is_set():
            try:
                with self._coordinator() as client:
                    while not self._ending.wait(0.1) and self._look(client):
                        self.looks += 1
            except (OSError, EOFError):  # the test disturbed the broker: find it again
                self._ending.wait(0.1)

    def _coordinator(self) -> WireClient:
        host, _, port = self.bootstrap.split(",")[0].rpartition(":")
        with WireClient(host, int(port), 5.0) as client:
            asked = FindCoordinatorRequest(coordinator_keys=[self.group])
            (found,) = client.ask(asked, 4).coordinators
        if found.error_code:
            raise OSError(f"no coordinator: {found.error_code}")
        return WireClient(found.host, found.port, 5.0)

    def _look(self, client: WireClient) -> bool:
        """Compare offsets with the last ones; return False if the coordinator has moved."""
        asked = OffsetFetchRequestGroup(group_id=self.group, topics=None)
        (found,) = client.ask(OffsetFetchRequest(groups=[asked]), 8).groups
        if found.error_code:
            return False
        now = {p.partition_index: p.committed_offset for t in found.topics for p in t.partitions}
        for partition, offset in self.committed.items():
            if now.get(partition, _NO_OFFSET) < offset:
                self.regressions.append(f"partition {partition}: {offset}, then {now}")
        self.committed.update(now)
        return True


# ---- invariants ------------------------------------------------------------------------------


def until_all_owned(members: Iterable[Member], partitions: int, timeout_s: float) -> float:
    """Wait until each partition has one owner and each member a partition; return the time."""
    living = list(members)

    def settled() -> bool:
        owned = [one.owned() for one in living]
        everything = sorted(p for some in owned for p in some)
        return everything == list(range(partitions)) and all(owned)

    try:
        wait_until(settled, "every partition to have one owner", timeout_s)
    except AssertionError as failure:
        said = "\n".join(one.last_words() for one in living)
        raise AssertionError(f"{failure}\n{said}") from None
    return max(span.since for one in living for span in one.spans() if span.until is None)


def overlaps(members: Iterable[Member]) -> list[str]:
    """Return partitions that two members owned at once, both alive and awake."""
    spans: dict[int, list[Span]] = {}
    asleep = {}
    for member in members:
        asleep[member.name] = member.asleep
        for span in member.spans():
            spans.setdefault(span.partition, []).append(span)
    found = []
    for of_partition in spans.values():
        of_partition.sort(key=lambda span: span.since)
        for index, one in enumerate(of_partition):
            found += [
                f"{one} and {other}"
                for other in of_partition[index + 1 :]
                if _meet(one, other) and not _slept(asleep[one.member], one, other)
            ]
    return found


def _meet(one: Span, other: Span) -> bool:
    """Return whether the later of two spans begins before the earlier one ends."""
    return one.member != other.member and (one.until is None or other.since < one.until)


def _slept(asleep: list[list[float]], one: Span, other: Span) -> bool:
    """Return whether the first owner was stopped and so could not know of its loss."""
    return any(one.since <= begin <= other.since for begin, _ in asleep)


def unread(members: Iterable[Member], ends: Mapping[int, int]) -> dict[int, list[int]]:
    """Return the offsets below each partition's end that no member processed."""
    seen: dict[int, set[int]] = {partition: set() for partition in ends}
    for member in members:
        for partition, offsets in member.read().items():
            seen[partition].update(offsets)
    missing = {p: sorted(set(range(end)) - seen[p]) for p, end in ends.items()}
    return {partition: offsets for partition, offsets in missing.items() if offsets}
