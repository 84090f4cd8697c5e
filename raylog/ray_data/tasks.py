"""The workers' side of a write: splits rows into parts, and writes each output partition."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import ray
from ray.data.block import BlockAccessor

from raylog.ray_data.rows import split_block
from raylog.sink.commit import TaskReport
from raylog.sink.driver import SinkSettings
from raylog.sink.partition_run import PartitionRun
from raylog.sink.rows import Topics

_STAGE = 0
"""A run has one stage: the writing tasks."""
_ATTEMPT_BITS = 62

Part = list[bytes]
"""The rows of a block for one output partition, as record batches."""


def cut(block: Any, topics: Topics, number: int, settings: SinkSettings) -> list[Part] | Part:
    """Task: split the rows of a block by output partition. Raises BadColumns and BadRow.

    A task with a single return value returns it without a list.
    """
    parts: list[Part] = [[] for _ in topics.targets()]
    table = BlockAccessor.for_block(block).to_arrow()
    now_ms = int(time.time() * 1000)
    for target, rows in split_block(table, topics, number, now_ms, settings):
        parts[target].append(rows)
    return parts if len(parts) > 1 else parts[0]


@dataclass(frozen=True, slots=True)
class RayRun(PartitionRun):
    """What the tasks of one run need; pickled and sent to them."""

    def write(self, target: int, parts: Iterable[Any]) -> TaskReport:
        """Task: write all rows of one output partition. Raises PermitRefused.

        `parts` are references to `Part`s, which are loaded one at a time. Ray does not tell a task
        its attempt number, so each execution draws its own id.
        """
        self.permit_client.ask(target, _STAGE, secrets.randbits(_ATTEMPT_BITS))
        return self.written(target, _rows(parts))


def _rows(parts: Iterable[Any]) -> Iterator[bytes]:
    for reference in parts:
        yield from ray.get(reference)
