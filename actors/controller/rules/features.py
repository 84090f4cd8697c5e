"""Finalized feature levels (KIP-584)."""

from __future__ import annotations

from raylog.actors.controller.messages import (
    FeatureOutcome,
    FeatureUpdate,
    FeatureUpgradeType,
    UpdateFeatures,
)
from raylog.actors.controller.rules.decision import Decision
from raylog.actors.metadata.features import SUPPORTED, level_of
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import FeatureChanged, Record
from raylog.wire.errors import InvalidUpdateVersion, KafkaError


class FeatureControl:
    """Decides about features from the image."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    def bootstrap(self) -> list[Record]:
        """Return the records that set every feature of a new cluster to its highest level."""
        return [
            FeatureChanged(name, feature.high, epoch)
            for epoch, (name, feature) in enumerate(SUPPORTED.items())
        ]

    def update(self, request: UpdateFeatures) -> Decision[list[FeatureOutcome]]:
        """Change levels: all of them, or none if one is refused."""
        outcomes = [self._outcome(update) for update in request.updates]
        changes = [
            update
            for update in request.updates
            if level_of(update.name, self._image.features) != update.level
        ]
        if request.validate_only or any(outcome.error for outcome in outcomes):
            return Decision([], outcomes)
        first = self._image.features_epoch + 1
        return Decision(
            [FeatureChanged(one.name, one.level, at) for at, one in enumerate(changes, first)],
            outcomes,
        )

    def _outcome(self, update: FeatureUpdate) -> FeatureOutcome:
        try:
            self._check(update)
        except KafkaError as refused:
            return FeatureOutcome(update.name, refused.code, refused.message)
        return FeatureOutcome(update.name)

    def _check(self, update: FeatureUpdate) -> None:
        begin = f"Invalid update version {update.level} for feature {update.name}."
        feature = SUPPORTED.get(update.name)
        if feature is None:
            raise InvalidUpdateVersion(f"{begin} The controller does not support this feature.")
        if not feature.low <= update.level <= feature.high:
            raise InvalidUpdateVersion(
                f"{begin} Only versions {feature.low}-{feature.high} are supported."
            )
        current = level_of(update.name, self._image.features)
        upgrades = update.upgrade_type is FeatureUpgradeType.UPGRADE
        if update.level < current and upgrades:
            raise InvalidUpdateVersion(
                f"{begin} Can't downgrade the version of this feature without setting the upgrade "
                "type to either safe or unsafe downgrade."
            )
        if update.level > current and not upgrades:
            raise InvalidUpdateVersion(f"{begin} Can't downgrade to a newer version.")
