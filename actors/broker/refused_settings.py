"""Says which stored settings are ignored, since this build refuses them."""

from __future__ import annotations

import logging

from raylog.actors.config import ResourceType, refusal
from raylog.actors.metadata.image import MetadataImage

log = logging.getLogger(__name__)


class RefusedSettings:
    """Each is told of once, for as long as it is stored."""

    def __init__(self) -> None:
        self._told: frozenset[tuple[int, str, str, str]] = frozenset()

    def tell(self, image: MetadataImage) -> None:
        """Log those that were not there before. Costs nothing where there are none."""
        if not image.refused and not self._told:
            return
        found = frozenset(
            (kind, name, key, text)
            for (kind, name), settings in image.refused.items()
            for key, text in settings.items()
        )
        for kind, name, key, text in sorted(found - self._told):
            what = ResourceType(kind).name.lower()
            log.warning(
                "%s was stored for %s by another build and is ignored, its default is in "
                "force: %s. Take it back with: raylog configs alter %s%s --unset %s",
                key,
                f"{what} {name!r}" if name else f"all {what}s",
                refusal(kind, key, text),
                what,
                f" {name}" if name else "",
                key,
            )
        self._told = found
