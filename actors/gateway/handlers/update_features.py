"""UpdateFeatures 0-2: changes finalized feature levels, all of them or none (KIP-584).

v1 distinguishes upgrades from safe and unsafe downgrades and can validate only (KIP-778), v2 has no
results for single features.
"""

from __future__ import annotations

from raylog.actors.controller.messages import (
    FeatureUpdate,
    FeatureUpgradeType,
    UpdateFeatures,
)
from raylog.actors.gateway.context import RequestContext
from raylog.actors.remote import Controller
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
    """Change levels through the controller; on an error nothing is changed.

    Raises the first feature's error.
    """
    updates = [_update(one, context.version) for one in request.feature_updates]
    asked = UpdateFeatures(updates, request.validate_only)
    outcomes = await context.gateway.controller.ask(
        Controller.update_features, asked, timeout_ms=request.timeout_ms
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


def _update(update: FeatureUpdateKey, version: int) -> FeatureUpdate:
    if version < UPGRADE_TYPE_SINCE:
        kind = FeatureUpgradeType.UPGRADE
        if update.allow_downgrade:
            kind = FeatureUpgradeType.SAFE_DOWNGRADE
        return FeatureUpdate(update.feature, update.max_version_level, kind)
    known = _UPGRADE_TYPES.get(update.upgrade_type)
    if known is None:
        raise InvalidUpdateVersion(
            _failed_for_all(f"{update.feature}: upgrade type {update.upgrade_type} is unknown")
        )
    return FeatureUpdate(update.feature, update.max_version_level, known)


def _failed_for_all(message: str | None) -> str:
    return f"The update failed for all features since the following feature had an error: {message}"
