"""Runs a client's interceptors in order; exceptions they raise are logged and ignored."""

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
    """The configured interceptors of one client. False if there are none.

    Check `if chain` first, to avoid building records that no interceptor would see.
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
        """Whether there are any interceptors."""
        return bool(self._interceptors)

    def __len__(self) -> int:
        """Return the number of interceptors."""
        return len(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Pass a record that is being sent through all interceptors; return the result."""
        for one in self._interceptors:
            try:
                record = one.on_send(record)
            except Exception:  # noqa: BLE001 — logged; an interceptor never loses a record
                _raised(one, "on_send")
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, failure: Exception | None) -> None:
        """Tell all interceptors that a record was acknowledged or failed."""
        for one in self._interceptors:
            try:
                one.on_acknowledgement(metadata, failure)
            except Exception:  # noqa: BLE001 — logged; an interceptor never loses a record
                _raised(one, "on_acknowledgement")

    def on_consume(self, records: Sequence[ConsumerRecord]) -> Sequence[ConsumerRecord]:
        """Pass records that were read through all interceptors; return the result."""
        for one in self._interceptors:
            try:
                records = one.on_consume(records)
            except Exception:  # noqa: BLE001 — logged; an interceptor never loses a record
                _raised(one, "on_consume")
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Tell all interceptors about committed offsets."""
        for one in self._interceptors:
            try:
                one.on_commit(offsets)
            except Exception:  # noqa: BLE001 — logged; an interceptor never loses a record
                _raised(one, "on_commit")

    def close(self) -> None:
        """Close all interceptors in order."""
        for one in self._interceptors:
            try:
                one.close()
            except Exception:  # noqa: BLE001 — logged; an interceptor never loses a record
                _raised(one, "close")


def _resolved(
    interceptors: str | Sequence[str | ClientInterceptor],
) -> tuple[ClientInterceptor, ...]:
    """Create instances for names; keep objects unchanged."""
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
    """Log the current exception."""
    _log.exception("interceptor %s raised in %s; the client goes on", _name(one), method)


def _name(one: ClientInterceptor) -> str:
    return f"{type(one).__module__}.{type(one).__qualname__}"
