"""The workers' side of a write: rows are cut into parts, and each output partition is written."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import ray
from ray.data.block import BlockAccessor

from raylog.ray_data.rows import split_block
from raylog.raydp_jobs.commit import TaskReport
from raylog.raydp_jobs.driver import SinkSettings
from raylog.raydp_jobs.partition_run import PartitionRun
from raylog.raydp_jobs.rows import Topics

_STAGE = 0
"""A run has one: the tasks that write."""
_ATTEMPT_BITS = 62

Part = list[bytes]
"""Rows of one block for one output partition: record batches."""


def cut(block: Any, topics: Topics, number: int, settings: SinkSettings) -> list[Part] | Part:
    """A task: the rows of a block by output partition. Raises BadColumns, BadRow.

    A task with one return value returns it alone.
    """
    parts: list[Part] = [[] for _ in topics.targets()]
    table = BlockAccessor.for_block(block).to_arrow()
    now_ms = int(time.time() * 1000)
    for target, rows in split_block(table, topics, number, now_ms, settings):
        parts[target].append(rows)
    return parts if len(parts) > 1 else parts[0]


@dataclass(frozen=True, slots=True)
class RayRun(PartitionRun):
    """What the tasks of one run need; travels to them."""

    def write(self, target: int, parts: Iterable[Any]) -> TaskReport:
        """A task: all rows of one output partition. Raises PermitRefused.

        `parts` are references to `Part`s, of which one at a time is held. Ray does not tell a task
        which of its attempts it is, so each execution calls itself by a number of its own.
        """
        self.desk.ask(target, _STAGE, secrets.randbits(_ATTEMPT_BITS))
        return self.written(target, _rows(parts))


def _rows(parts: Iterable[Any]) -> Iterator[bytes]:
    for reference in parts:
        yield from ray.get(reference)
