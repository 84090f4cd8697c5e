"""Groups without the shard around them, for the rules of one group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raylog.actors.coordination.rules.step import (
    NO_CHANGE,
    Change,
    ClientCall,
    LogRecord,
    Step,
    TimerKey,
)
from raylog.actors.decisions import Decided
from raylog.wire.internal.consumer_groups import ConsumerGroupMetadataKey
from raylog.wire.internal.offsets import GroupMetadataKey
from tests.worlds.coordination.steps import Ask, StepWorld


class GroupWorld(StepWorld):
    """Groups, the records they wrote, their timers, and a clock that tests move."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        """`make` returns a group without any record."""
        super().__init__()
        self.groups: dict[str, Any] = {}
        self.decided: list[Decided] = []
        self._make = make

    def run(self, event: Callable[[Any], object], replay: Any = None) -> Any:
        """Run one step and keep its decisions."""
        step = super().run(event, replay)
        self.decided += step.decided
        return step

    def ask(
        self,
        method: Callable[[Any, Step, ClientCall[Any]], None],
        request: Any,
        version: int,
        *,
        client_id: str = "client",
    ) -> Ask:
        """Pass a request to its group, by this method of the group's class."""
        group = self.groups[request.group_id]
        return self.submit(
            lambda step, asked: method(group, step, asked), request, version, client_id
        )

    def fire(self, group_id: str, key: TimerKey, step: Step) -> None:
        """Fire a group's timer, unless the group is gone."""
        if group_id in self.groups:
            self.groups[group_id].timer(step, key)

    def crash(self) -> list[ClientCall[Any]]:
        """Lose everything but the log, and load it; return the requests that were unanswered."""
        waiting = [asked for group in self.groups.values() for asked in group.unload()]
        self.groups, self.timers = {}, {}
        for record in self.log:
            self.replay(record).commit()
        for group in self.groups.values():
            self.run(group.loaded)
        return waiting

    def replay(self, record: LogRecord) -> Change:
        """Replay a record into its group."""
        key: Any = record.key
        group_id = key.group if hasattr(key, "group") else key.group_id
        if record.value is None and isinstance(key, GroupMetadataKey | ConsumerGroupMetadataKey):
            self.groups.pop(group_id, None)
            return NO_CHANGE
        if group_id not in self.groups:
            self.groups[group_id] = self._make(group_id)
        change: Change = self.groups[group_id].replay(record)
        return change
