"""An embedded broker in which `bench.metrics_cost` can switch counting off and on.

The product has no switch for its metrics, so this module compiles its functions a second time, from
their source without the lines that count. Both variants stay in the process, and a function runs
either: the memory, hash seed and everything else that makes processes differ are the same.

Commands are lines: `counted` and `uncounted` switch the code, `cpu` changes nothing. Each is
answered with the CPU time of the process in ns. The broker ends with its input.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, cast

from raylog.actors.gateway.actor import GatewayActor
from raylog.actors.gateway.connection import ClientConnection, Slot
from raylog.actors.gateway.context import RequestContext
from raylog.actors.gateway.handlers.fetch import _Fetch
from raylog.actors.replica.partition import Partition
from raylog.testing import EmbeddedBroker

COUNTED, UNCOUNTED, CPU = COMMANDS = ("counted", "uncounted", "cpu")
READY = "ready "
"""The prefix of the first output line, followed by the broker's address."""
Function = Callable[..., Any]

COUNTING: list[tuple[Function, list[str]]] = [
    (
        Slot.__init__,
        [
            "self.taken_s = self.begun_s = taken_s",
            "self.left_s = 0.0",
            "self.api_counts = NOT_COUNTED",
        ],
    ),
    (ClientConnection.buffer_updated, ["self._counts.bytes_in += nbytes"]),
    (
        ClientConnection.filled,
        [
            "now_s = self._clock()",
            "slot.filled_s = now_s",
            "slot.api_counts.answered(slot, now_s)",
            "self._counts.bytes_out += len(out[0]) if len(out) == 1 else sum(map(len, out))",
        ],
    ),
    (
        ClientConnection._take_filled,
        ["now_s = self._clock()", "done.api_counts.waited(done, done.filled_s, now_s)"],
    ),
    (
        GatewayActor._begin,
        [
            "counts = slot.api_counts = self.counts.apis[api_key]",
            "counts.requests += 1",
            "if slot.answer is None:",
            "slot.left_s = self.runtime.clock()",
        ],
    ),
    (
        RequestContext.reply,
        [
            "if not self.is_large:",
            "self.gateway.counts.errors.answered(self.header.api_key, response)",
        ],
    ),
    (_Fetch._add_records, ["gateway.counts.topics.of(topic.name).out += part.length"]),
    (
        Partition._produce,
        [
            "counts = self.counts",
            "counts.batches_in += 1",
            "counts.bytes_in += len(batch)",
            "counts.records_in += info.next_offset - info.base_offset",
        ],
    ),
]
"""Functions that every request passes, and their lines that only count."""


@dataclass(frozen=True, slots=True)
class Variants:
    """The code of a function, original and without the lines that count."""

    function: FunctionType
    counted: CodeType
    uncounted: CodeType


def variants_of(function: Function, counting: list[str]) -> Variants:
    """Both variants of a function without closure. Raises LookupError if a line is missing."""
    own = cast(FunctionType, function)
    source = textwrap.dedent(inspect.getsource(own)).splitlines()
    missing = set(counting) - {line.strip() for line in source}
    if missing:
        raise LookupError(f"{own.__qualname__} has no lines {sorted(missing)}")
    left = "\n".join(line for line in source if line.strip() not in counting)
    made: dict[str, Any] = {}
    exec(compile(left, own.__code__.co_filename, "exec"), own.__globals__, made)
    return Variants(own, own.__code__, made[own.__name__].__code__)


def all_variants() -> list[Variants]:
    """The variants of all functions that count."""
    return [variants_of(function, lines) for function, lines in COUNTING]


def main() -> None:
    """Run a broker and execute commands."""
    everything = all_variants()
    with EmbeddedBroker(settings={"gateway.in.replica.process": "true"}) as broker:
        print(f"{READY}{broker.bootstrap}", flush=True)
        for line in sys.stdin:
            command = line.strip()
            assert command in COMMANDS, f"expected one of {COMMANDS}, found {command!r}"
            if command != CPU:
                for one in everything:
                    one.function.__code__ = getattr(one, command)
            print(time.process_time_ns(), flush=True)


if __name__ == "__main__":
    main()
