"""Users that manage: topics, groups and offsets; and connections that come and go."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle

from raylog.client import LATEST, Admin, NewTopic, TopicPartition
from raylog.client.producer.reports import describe
from raylog.loadtest.operations import (
    CONNECT,
    CREATE,
    DELETE,
    DESCRIBE,
    LIST_GROUPS,
    LIST_OFFSETS,
)
from raylog.loadtest.scenario import AdminUsers, ConnectionUsers
from raylog.loadtest.users.base import ERRORS, LoadUser

_PARTITIONS = 3


class AdminUser(LoadUser[AdminUsers]):
    """Creates a topic, looks at it, at groups and at the ends of a scenario's topic, deletes it.

    Ends that move back are wrong answers.
    """

    abstract = True
    operation = CONNECT
    _admin: Admin | None = None

    def on_start(self) -> None:
        """The rate counts from here."""
        super().on_start()
        self._pace = self.pace_of(self.entry.rate, self.entry.count)
        self._made = 0
        self._ends: dict[TopicPartition, int] = {}
        self._topics = cycle(sorted(map(self.local.topic, self.local.scenario.topics)))

    def begin(self) -> None:
        """Connect."""
        self._admin = Admin(self.local.client_settings(self.entry.client))
        self._requests = cycle(
            (
                (CREATE, self._create),
                (DESCRIBE, self._describe),
                (LIST_OFFSETS, self._list_offsets),
                (LIST_GROUPS, self._list_groups),
                (DELETE, self._delete),
            )
        )

    def step(self) -> None:
        """The requests that are due."""
        assert self._admin is not None, "begin comes before step"
        for intended_us in self._pace.due(self.local.clock.now_us(), self.local.factor, 1):
            operation, request = next(self._requests)
            self._do(operation, request, self._admin, intended_us)
        self.await_due(self._pace)

    def end(self) -> None:
        """Delete what is left, close the connections."""
        admin, self._admin = self._admin, None
        if admin is None:
            return
        try:
            if self._topic is not None:
                self._delete(admin)
        finally:
            admin.close()

    _topic: str | None = None
    """Its own, if it is there."""

    def _do(
        self, operation: str, request: Callable[[Admin], None], admin: Admin, intended_us: int
    ) -> None:
        recorder = self.local.recorder
        recorder.intended(operation)
        try:
            request(admin)
        except ERRORS as error:
            recorder.failed(operation, describe(error))
            return
        recorder.done(operation, intended_us, self.local.clock.now_us())

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
                self.local.findings.add(
                    "wrong-offset",
                    f"{key.topic}-{key.partition}: the end was {before}, is {found.offset}",
                )
            self._ends[key] = max(before, found.offset)


class ConnectionChurnUser(LoadUser[ConnectionUsers]):
    """Connects, asks for metadata and closes, over and over."""

    abstract = True
    operation = CONNECT

    def on_start(self) -> None:
        """The rate counts from here."""
        super().on_start()
        self._pace = self.pace_of(self.entry.rate, self.entry.count)

    def begin(self) -> None:
        """There is nothing that lasts."""

    def step(self) -> None:
        """The connections that are due."""
        recorder, settings = self.local.recorder, self.local.client_settings(self.entry.client)
        for intended_us in self._pace.due(self.local.clock.now_us(), self.local.factor, 1):
            recorder.intended(CONNECT)
            try:
                with Admin(settings) as admin:
                    admin.metadata([])
            except ERRORS as error:
                recorder.failed(CONNECT, describe(error))
                continue
            recorder.done(CONNECT, intended_us, self.local.clock.now_us())
        self.await_due(self._pace)

    def end(self) -> None:
        """There is nothing that lasts."""
