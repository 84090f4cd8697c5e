"""Users that manage topics, groups and offsets, and users that only connect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle

from raylog.client import LATEST, Admin, NewTopic, TopicPartition
from raylog.loadtest.operations import (
    CONNECT,
    CREATE,
    DELETE,
    DESCRIBE,
    LIST_GROUPS,
    LIST_OFFSETS,
)
from raylog.loadtest.scenario import AdminUsers, ConnectionUsers
from raylog.loadtest.users.paced import PacedUser

_PARTITIONS = 3


class AdminUser(PacedUser[AdminUsers]):
    """Creates a topic, describes it, lists groups and offsets of a scenario's topic, deletes it.

    End offsets that move back are wrong answers.
    """

    abstract = True
    operation = CONNECT
    _admin: Admin | None = None

    def on_start(self) -> None:
        """Start without a topic."""
        super().on_start()
        self._made = 0
        self._ends: dict[TopicPartition, int] = {}
        self._topics = cycle(sorted(map(self.local.topic, self.local.scenario.topics)))
        self._requests = self._in_turn()

    def begin(self) -> None:
        """Connect."""
        self._admin = Admin(self.local.client_settings(self.entry.client))
        self._requests = self._in_turn()

    def _in_turn(self) -> Iterator[tuple[str, Callable[[Admin], None]]]:
        return cycle(
            (
                (CREATE, self._create),
                (DESCRIBE, self._describe),
                (LIST_OFFSETS, self._list_offsets),
                (LIST_GROUPS, self._list_groups),
                (DELETE, self._delete),
            )
        )

    def perform(self, intended_us: list[int]) -> None:
        """Make the next requests."""
        assert self._admin is not None, "begin comes before step"
        for at_us in intended_us:
            operation, make = next(self._requests)
            self.request(operation, at_us, partial(make, self._admin))

    def fail(self, intended_us: list[int], error: str) -> None:
        """Count the next requests as failed."""
        for at_us in intended_us:
            operation, _ = next(self._requests)
            self.local.recorder.failed(operation, error, at_us)

    def end(self) -> None:
        """Delete the topic if it is left, and close the connections."""
        admin, self._admin = self._admin, None
        if admin is None:
            return
        try:
            if self._topic is not None:
                self._delete(admin)
        finally:
            admin.close()

    _topic: str | None = None
    """The user's own topic, if it exists."""

    def _create(self, admin: Admin) -> None:
        local = self.local
        self._topic = local.topic(f"admin-{local.worker}-{self.number}-{self.seat}-{self._made}")
        self._made += 1
        admin.create_topics([NewTopic(self._topic, _PARTITIONS)])

    def _describe(self, admin: Admin) -> None:
        if self._topic is not None:
            admin.describe_topic(self._topic)

    def _delete(self, admin: Admin) -> None:
        if self._topic is not None:
            name, self._topic = self._topic, None
            admin.delete_topics([name])

    @staticmethod
    def _list_groups(admin: Admin) -> None:
        admin.list_groups()

    def _list_offsets(self, admin: Admin) -> None:
        topic = next(self._topics)
        keys = [TopicPartition(topic, index) for index in admin.describe_topic(topic).partitions]
        for key, found in admin.list_offsets(dict.fromkeys(keys, LATEST)).items():
            before = self._ends.get(key, 0)
            if found.offset < before:
                text = f"the end went back from {before} to {found.offset}"
                self.local.findings.add("wrong-offset", key, text)
            self._ends[key] = max(before, found.offset)


class ConnectionChurnUser(PacedUser[ConnectionUsers]):
    """Connects, requests metadata and closes, repeatedly."""

    abstract = True
    operation = CONNECT

    def begin(self) -> None:
        """Do nothing: no client lasts."""

    def perform(self, intended_us: list[int]) -> None:
        """Make connections."""
        for at_us in intended_us:
            self.request(CONNECT, at_us, self._connect)

    def _connect(self) -> None:
        with Admin(self.local.client_settings(self.entry.client)) as admin:
            admin.metadata([])

    def end(self) -> None:
        """Do nothing: no client lasts."""
