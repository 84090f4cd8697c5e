"""AlterClientQuotas, API key 49 (KIP-546).

v1 is flexible.
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import BOOL, FLOAT64, INT16, INT32, STRING, array, message, struct, wire


@struct
class EntityData:
    """One part of an entity."""

    entity_type: str = wire(STRING)  # user, client-id or ip
    entity_name: str | None = wire(STRING, nullable="0+")  # None: the default


@struct
class OpData:
    """One quota to set or remove."""

    key: str = wire(STRING)
    value: float = wire(FLOAT64)  # ignored if it is removed
    remove: bool = wire(BOOL)


@struct
class EntryData:
    """The changes of one entity."""

    entity: list[EntityData] = wire(array(EntityData))
    ops: list[OpData] = wire(array(OpData))


@message(ApiKey.ALTER_CLIENT_QUOTAS, versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    """The changes. Each entity succeeds or fails on its own."""

    entries: list[EntryData] = wire(array(EntryData))
    validate_only: bool = wire(BOOL)  # check, change nothing


@struct
class ResponseEntryData:
    """The outcome for one entity."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")
    entity: list[EntityData] = wire(array(EntityData))


@message(ApiKey.ALTER_CLIENT_QUOTAS, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    """The outcomes."""

    throttle_time_ms: int = wire(INT32)
    entries: list[ResponseEntryData] = wire(array(ResponseEntryData))
