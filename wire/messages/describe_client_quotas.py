"""DescribeClientQuotas, API key 48 (KIP-546).

v1 is flexible.
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import (
    BOOL,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    STRING,
    array,
    message,
    struct,
    wire,
)


@struct
class ComponentData:
    """A condition on one part of the entity."""

    entity_type: str = wire(STRING)  # user, client-id or ip
    match_type: int = wire(INT8)  # 0 the name, 1 the default, 2 any
    match: str | None = wire(STRING, nullable="0+")  # None unless a name is to match


@message(ApiKey.DESCRIBE_CLIENT_QUOTAS, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    """The filter for entities. All parts must match."""

    components: list[ComponentData] = wire(array(ComponentData))
    strict: bool = wire(BOOL)  # entities with other parts do not match


@struct
class EntityData:
    """One part of an entity."""

    entity_type: str = wire(STRING)
    entity_name: str | None = wire(STRING, nullable="0+")  # None: the default


@struct
class ValueData:
    """One quota."""

    key: str = wire(STRING)  # producer_byte_rate and the like
    value: float = wire(FLOAT64)


@struct
class EntryData:
    """The quotas of one entity."""

    entity: list[EntityData] = wire(array(EntityData))
    values: list[ValueData] = wire(array(ValueData))


@message(ApiKey.DESCRIBE_CLIENT_QUOTAS, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    """The quotas found."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")
    entries: list[EntryData] | None = wire(array(EntryData), nullable="0+")  # None on error
