"""ApiVersions, API key 18: the API versions that the broker supports.

v3 is flexible, and adds the client's name (KIP-511) and features (KIP-584).
v4 lets features start at version 0 (KIP-1050).
The response header is always version 0. A request of an unknown version is answered in v0 with
UNSUPPORTED_VERSION.
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import BOOL, INT16, INT32, INT64, STRING, array, message, struct, wire


@message(ApiKey.API_VERSIONS, versions="0-4", flexible="3+")
class ApiVersionsRequest:
    """Usually the first request of a connection."""

    client_software_name: str = wire(STRING, "3+", ignorable=True)  # KIP-511
    client_software_version: str = wire(STRING, "3+", ignorable=True)  # KIP-511


@struct
class ApiVersion:
    """The versions of one API, both ends inclusive."""

    api_key: int = wire(INT16)
    min_version: int = wire(INT16)
    max_version: int = wire(INT16)


@struct
class SupportedFeatureKey:
    """The levels of a feature that the broker supports."""

    name: str = wire(STRING)
    min_version: int = wire(INT16)
    max_version: int = wire(INT16)


@struct
class FinalizedFeatureKey:
    """The finalized levels of a feature in the cluster."""

    name: str = wire(STRING)
    max_version_level: int = wire(INT16)
    min_version_level: int = wire(INT16)


@message(ApiKey.API_VERSIONS, versions="0-4", flexible="3+")
class ApiVersionsResponse:
    """The supported APIs and features."""

    error_code: int = wire(INT16)
    api_keys: list[ApiVersion] = wire(array(ApiVersion))
    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    # KIP-584
    supported_features: list[SupportedFeatureKey] = wire(
        array(SupportedFeatureKey), "3+", tag=0, ignorable=True
    )
    # rises with every change; -1: unknown (KIP-584)
    finalized_features_epoch: int = wire(INT64, "3+", default=-1, tag=1, ignorable=True)
    # KIP-584
    finalized_features: list[FinalizedFeatureKey] = wire(
        array(FinalizedFeatureKey), "3+", tag=2, ignorable=True
    )
    zk_migration_ready: bool = wire(BOOL, "3+", tag=3, ignorable=True)  # KIP-584
