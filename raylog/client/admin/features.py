"""Cluster features: what the brokers support, and what is finalized (KIP-584).

ApiVersions from version 3 on, and UpdateFeatures, versions 0 to 2. Changes are not retried once
they were sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from raylog.client.admin.base import Operations
from raylog.client.channel import api_versions_request
from raylog.client.errors import NotSupported
from raylog.client.matching import answers_to, named
from raylog.client.refusals import check
from raylog.wire.api import ApiKey
from raylog.wire.messages.api_versions import ApiVersionsResponse
from raylog.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_KINDS_SINCE = 1
"""First UpdateFeatures version with dry runs and kinds of downgrade."""
_NO_RESULTS_SINCE = 2
"""First UpdateFeatures version with one error for all features."""
_name = named("feature")


class UpgradeType(IntEnum):
    """The direction in which a feature's level may change."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    """Only if no metadata is lost."""
    UNSAFE_DOWNGRADE = 3
    """Even if metadata is lost."""


@dataclass(frozen=True, slots=True)
class Features:
    """The features of a cluster, by name."""

    supported: Mapping[str, tuple[int, int]]
    """Lowest and highest level that the broker supports, by feature."""
    finalized: Mapping[str, int]
    """The level in use, by feature."""
    epoch: int
    """Increases with every change; -1 if unknown."""


class FeatureAdmin(Operations):
    """The operations on features; the blocking and the asyncio client offer each as one call."""

    async def describe_features(self) -> Features:
        """Return supported and finalized features, as reported by one broker."""
        response = await self._core.ask_any(api_versions_request(), ApiVersionsResponse)
        check(response.error_code, "features")
        return Features(
            {one.name: (one.min_version, one.max_version) for one in response.supported_features},
            {one.name: one.max_version_level for one in response.finalized_features},
            response.finalized_features_epoch,
        )

    async def update_features(
        self,
        levels: Mapping[str, int],
        *,
        upgrade_type: UpgradeType = UpgradeType.UPGRADE,
        validate_only: bool = False,
    ) -> None:
        """Finalize feature levels, where 0 disables a feature; raises the first error.

        Raises NotSupported if the broker is too old for `validate_only` or UNSAFE_DOWNGRADE.
        """
        node_id = await self._core.repeat(self._core.controller)
        version = await self._core.version_on(node_id, ApiKey.UPDATE_FEATURES)
        if version < _KINDS_SINCE and (
            validate_only or upgrade_type is UpgradeType.UNSAFE_DOWNGRADE
        ):
            what = "validate_only" if validate_only else upgrade_type.name
            raise NotSupported(f"broker {node_id} is too old for {what}")
        updates = [_update(name, level, upgrade_type, version) for name, level in levels.items()]
        request = UpdateFeaturesRequest(
            timeout_ms=self._core.settings.request_timeout_ms,
            feature_updates=updates,
            validate_only=validate_only,
        )
        response = await self._core.ask(node_id, request, UpdateFeaturesResponse, at_most=version)
        check(response.error_code, "features", response.error_message)
        if version < _NO_RESULTS_SINCE:
            answers = ((result.feature, result) for result in response.results)
            for feature, result in answers_to(levels, answers, _name).items():
                check(result.error_code, _name(feature), result.error_message)


def _update(name: str, level: int, upgrade_type: UpgradeType, version: int) -> FeatureUpdateKey:
    update = FeatureUpdateKey(feature=name, max_version_level=level)
    if version < _KINDS_SINCE:
        update.allow_downgrade = upgrade_type is not UpgradeType.UPGRADE
    else:
        update.upgrade_type = upgrade_type
    return update
