"""UpdateFeatures 0-2: moves finalized feature levels, all of them or none (KIP-584).

v1 tells upgrades from safe and unsafe downgrades and may only validate (KIP-778), v2 has no
outcome per feature.
"""

from __future__ import annotations

from raylog.actors.controller.api import (
    FeatureOutcome,
    FeatureUpdate,
    FeatureUpgradeType,
    UpdateFeatures,
)
from raylog.actors.gateway.context import RequestContext
from raylog.wire.errors import InvalidUpdateVersion, error_of
from raylog.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

UPGRADE_TYPE_SINCE = 1
NO_RESULTS_SINCE = 2
_UPGRADE_TYPES = {int(kind): kind for kind in FeatureUpgradeType}


async def update_features(
    context: RequestContext, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    """Have the controller move them; raises the first feature's error, nothing moved then."""
    updates = [_update(one, context.version) for one in request.feature_updates]
    outcomes: list[FeatureOutcome] = await context.gateway.controller.ask(
        "update_features", UpdateFeatures(updates, request.validate_only), request.timeout_ms
    )
    for outcome in outcomes:
        if outcome.error:
            raise error_of(outcome.error, _failed_for_all(outcome.message))
    if context.version >= NO_RESULTS_SINCE:
        return UpdateFeaturesResponse(error_message=None)
    return UpdateFeaturesResponse(
        error_message=None,
        results=[UpdatableFeatureResult(feature=one.name, error_message=None) for one in outcomes],
    )


def _update(asked: FeatureUpdateKey, version: int) -> FeatureUpdate:
    if version < UPGRADE_TYPE_SINCE:
        kind = FeatureUpgradeType.UPGRADE
        if asked.allow_downgrade:
            kind = FeatureUpgradeType.SAFE_DOWNGRADE
        return FeatureUpdate(asked.feature, asked.max_version_level, kind)
    known = _UPGRADE_TYPES.get(asked.upgrade_type)
    if known is None:
        raise InvalidUpdateVersion(
            _failed_for_all(f"{asked.feature}: upgrade type {asked.upgrade_type} is unknown")
        )
    return FeatureUpdate(asked.feature, asked.max_version_level, known)


def _failed_for_all(message: str | None) -> str:
    return f"The update failed for all features since the following feature had an error: {message}"
