"""Client quotas: limits for users, client ids and IP addresses (KIP-546).

DescribeClientQuotas and AlterClientQuotas, versions 0 and 1. Changes are not retried once they were
sent, but are safe to repeat.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

from raylog.client.admin.base import Operations, items_in
from raylog.client.errors import InvalidSetting, NotSupported
from raylog.client.matching import answers_to, distinct_answers
from raylog.client.refusals import check
from raylog.wire.messages import alter_client_quotas, describe_client_quotas
from raylog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from raylog.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)


class QuotaMatch(Enum):
    """What can be given instead of a name: the default or, in a filter, any name."""

    DEFAULT = 1
    ANY = 2


DEFAULT_NAME: Final = QuotaMatch.DEFAULT
"""In a quota entity: everyone without a quota of their own."""
ANY_NAME: Final = QuotaMatch.ANY
"""In a filter: any name, and the default."""

QuotaName = str | Literal[QuotaMatch.DEFAULT]
"""A name, or DEFAULT_NAME."""
QuotaFilter = str | QuotaMatch
"""A name, DEFAULT_NAME or ANY_NAME."""

_TYPES = {"user": "user", "client-id": "client_id", "ip": "ip"}
"""Kafka's entity types to fields of QuotaEntity."""
_ORDER = {kind: place for place, kind in enumerate(_TYPES)}
_REMOVED = 0.0
"""Value sent for a quota that is removed; brokers ignore it."""


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """Who a quota applies to. None: the entity does not have this part.

    User and client id can be combined into one entity; an IP address stands alone.
    """

    user: QuotaName | None = None
    client_id: QuotaName | None = None
    ip: QuotaName | None = None


class QuotaAdmin(Operations):
    """The operations on quotas; the blocking and the asyncio client offer each as one call."""

    async def describe_client_quotas(
        self,
        *,
        user: QuotaFilter | None = None,
        client_id: QuotaFilter | None = None,
        ip: QuotaFilter | None = None,
        strict: bool = False,
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Return quotas by entity, for entities that have all the given parts (none: for all).

        `strict` omits entities that have other parts as well.
        """
        parts = {"user": user, "client-id": client_id, "ip": ip}
        request = DescribeClientQuotasRequest(
            components=[_component(kind, name) for kind, name in parts.items() if name is not None],
            strict=strict,
        )
        response = await self._core.ask_any(request, DescribeClientQuotasResponse)
        check(response.error_code, "client quotas", response.error_message)
        entries = response.entries or ()
        distinct_answers((_named(entry.entity), None) for entry in entries)
        return {
            _entity(entry.entity): {quota.key: quota.value for quota in entry.values}
            for entry in entries
        }

    async def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set quotas such as `producer_byte_rate`; None removes one. Other quotas do not change.

        Raises the first error, but the quotas of the other entities are changed.
        """
        if not isinstance(changes, Mapping):
            raise TypeError(f"expected quotas by QuotaEntity, found {changes!r}")
        items_in(changes, QuotaEntity)
        request = AlterClientQuotasRequest(
            entries=[_changed(entity, quotas) for entity, quotas in changes.items()],
            validate_only=validate_only,
        )
        response = await self._core.ask_controller(request, AlterClientQuotasResponse)
        results = answers_to(
            (_named(entry.entity) for entry in request.entries),
            ((_named(entry.entity), entry) for entry in response.entries),
        )
        for name, entry in results.items():
            check(entry.error_code, name, entry.error_message)


def _component(kind: str, name: QuotaFilter) -> ComponentData:
    if isinstance(name, QuotaMatch):
        return ComponentData(entity_type=kind, match_type=name.value, match=None)
    return ComponentData(entity_type=kind, match_type=0, match=name)


def _changed(
    entity: QuotaEntity, quotas: Mapping[str, float | None]
) -> alter_client_quotas.EntryData:
    named: dict[str, QuotaName | None] = {
        kind: getattr(entity, field) for kind, field in _TYPES.items()
    }
    for kind, name in named.items():
        if not isinstance(name, str | None) and name is not DEFAULT_NAME:
            raise InvalidSetting(
                f"expected {kind} of a quota to be a name or DEFAULT_NAME, found {name!r}"
            )
    return alter_client_quotas.EntryData(
        entity=[
            alter_client_quotas.EntityData(
                entity_type=kind, entity_name=None if name is DEFAULT_NAME else name
            )
            for kind, name in named.items()
            if name is not None
        ],
        ops=[
            alter_client_quotas.OpData(
                key=key,
                value=_REMOVED if value is None else _checked(key, value),
                remove=value is None,
            )
            for key, value in quotas.items()
        ],
    )


def _checked(key: str, value: float) -> float:
    """Return a quota's value; raises InvalidSetting unless it is a finite number."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidSetting(f"expected quota {key} to be a number, or None, found {value!r}")
    return value


def _entity(parts: Iterable[describe_client_quotas.EntityData]) -> QuotaEntity:
    named: dict[str, QuotaName] = {}
    for part in parts:
        if part.entity_type not in _TYPES:
            raise NotSupported(
                f"expected quotas of {', '.join(_TYPES)}, found an entity of type "
                f"{part.entity_type!r}"
            )
        name = part.entity_name
        named[_TYPES[part.entity_type]] = DEFAULT_NAME if name is None else name
    return QuotaEntity(**named)


def _named(
    parts: Iterable[alter_client_quotas.EntityData | describe_client_quotas.EntityData],
) -> str:
    """Name an entity for messages, independent of the order of its parts."""
    shown = (
        f"{one.entity_type} {'default' if one.entity_name is None else repr(one.entity_name)}"
        for one in sorted(parts, key=lambda one: _ORDER.get(one.entity_type, len(_ORDER)))
    )
    return f"quotas of {', '.join(shown) or 'nobody'}"
