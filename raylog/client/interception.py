"""Running a client's interceptors, in order; what one raises is logged and changes nothing."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from raylog.client.errors import InvalidSetting
from raylog.client.interceptors import (
    ClientInterceptor,
    ConsumerRecord,
    ProducerRecord,
    RecordMetadata,
    load,
)

if TYPE_CHECKING:
    from raylog.client.admin.groups import CommittedOffset
    from raylog.client.cluster import TopicPartition

_log = logging.getLogger(__name__)


class Chain:
    """The interceptors of one client, configured. False if there are none.

    A client that has none must not make records for them: it asks `if chain` first.
    """

    __slots__ = ("_interceptors",)

    def __init__(
        self,
        interceptors: str | Sequence[str | ClientInterceptor] = (),
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self._interceptors = _resolved(interceptors)
        for one in self._interceptors:
            try:
                one.configure(settings or {})
            except ValueError as failure:
                raise InvalidSetting(f"interceptor {_name(one)}: {failure}") from failure

    def __bool__(self) -> bool:
        """Whether there is one at all."""
        return bool(self._interceptors)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """What the interceptors make of a record that is sent."""
        for one in self._interceptors:
            try:
                record = one.on_send(record)
            except Exception:  # noqa: BLE001 — logged; an interceptor never loses a record
                _raised(one, "on_send")
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, failure: Exception | None) -> None:
        """Tell all of a record's end."""
        for one in self._interceptors:
            try:
                one.on_acknowledgement(metadata, failure)
            except Exception:  # noqa: BLE001 — logged; an interceptor never loses a record
                _raised(one, "on_acknowledgement")

    def on_consume(self, records: Sequence[ConsumerRecord]) -> Sequence[ConsumerRecord]:
        """What the interceptors make of records that were read."""
        for one in self._interceptors:
            try:
                records = one.on_consume(records)
            except Exception:  # noqa: BLE001 — logged; an interceptor never loses a record
                _raised(one, "on_consume")
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Tell all of committed offsets."""
        for one in self._interceptors:
            try:
                one.on_commit(offsets)
            except Exception:  # noqa: BLE001 — logged; an interceptor never loses a record
                _raised(one, "on_commit")

    def close(self) -> None:
        """Close all, the first one first."""
        for one in self._interceptors:
            try:
                one.close()
            except Exception:  # noqa: BLE001 — logged; an interceptor never loses a record
                _raised(one, "close")


def _resolved(
    interceptors: str | Sequence[str | ClientInterceptor],
) -> tuple[ClientInterceptor, ...]:
    """Names become new instances; objects stay."""
    if isinstance(interceptors, str):
        return tuple(load(interceptors))
    found: list[ClientInterceptor] = []
    for one in interceptors:
        if isinstance(one, str):
            found.extend(load(one))
        else:
            found.append(one)
    return tuple(found)


def _raised(one: ClientInterceptor, method: str) -> None:
    """Log the exception at hand."""
    _log.exception("interceptor %s raised in %s; the client goes on", _name(one), method)


def _name(one: ClientInterceptor) -> str:
    return f"{type(one).__module__}.{type(one).__qualname__}"
