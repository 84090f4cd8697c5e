"""UpdateFeatures, API key 57: finalize feature levels (KIP-584).

v1 adds a dry run and kinds of downgrade.
v2 succeeds or fails as a whole and lists no results (KIP-1022).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import BOOL, INT8, INT16, INT32, STRING, array, message, struct, wire


@struct
class FeatureUpdateKey:
    """One feature."""

    feature: str = wire(STRING)
    max_version_level: int = wire(INT16)  # the level to finalize; 0: none
    allow_downgrade: bool = wire(BOOL, "0")
    # 1 upgrade, 2 safe downgrade, 3 unsafe downgrade
    upgrade_type: int = wire(INT8, "1+", default=1)


@message(ApiKey.UPDATE_FEATURES, versions="0-2", flexible="0+")
class UpdateFeaturesRequest:
    """The changes."""

    timeout_ms: int = wire(INT32, default=60000)  # how long to wait for the commit
    feature_updates: list[FeatureUpdateKey] = wire(array(FeatureUpdateKey))
    validate_only: bool = wire(BOOL, "1+")  # check, change nothing


@struct
class UpdatableFeatureResult:
    """The outcome for one feature."""

    feature: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")


@message(ApiKey.UPDATE_FEATURES, versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    """The outcome."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+")
    results: list[UpdatableFeatureResult] = wire(
        array(UpdatableFeatureResult), "0-1", ignorable=True
    )
