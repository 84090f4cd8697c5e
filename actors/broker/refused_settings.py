"""Reports stored settings that this build refuses and therefore ignores."""

from __future__ import annotations

import logging

from raylog.actors.config import ResourceType, judged
from raylog.actors.metadata.image import MetadataImage

log = logging.getLogger(__name__)


class RefusedSettings:
    """Logs each refused setting once, as long as it stays stored."""

    def __init__(self) -> None:
        self._reported: frozenset[tuple[int, str, str, str]] = frozenset()

    def tell(self, image: MetadataImage) -> None:
        """Log newly refused settings. Costs nothing if there are none."""
        if not image.refused and not self._reported:
            return
        found = frozenset(
            (kind, name, key, text)
            for (kind, name), settings in image.refused.items()
            for key, text in settings.items()
        )
        for kind, name, key, text in sorted(found - self._reported):
            what = ResourceType(kind).name.lower()
            log.warning(
                "%s was stored for %s by another build and is ignored, its default is in "
                "force: %s. Take it back with: raylog configs alter %s%s --unset %s",
                key,
                f"{what} {name!r}" if name else f"all {what}s",
                judged(kind, key, text)[1],
                what,
                f" {name}" if name else "",
                key,
            )
        self._reported = found
