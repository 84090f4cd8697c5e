"""Records which metadata a broker has followed, and refuses metadata that contradicts it.

The record in the data directory is written soon after a change, but at most once per NOTE_MS. It
only bounds what can be lost unnoticed, so it need not be exact.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - part of the broker's shell: one note is written at a time
import logging

from raylog.actors.broker.identity import DataDirectory
from raylog.actors.controller.messages import Follow
from raylog.actors.metadata.followed import Followed, MetadataRefused, require_agreement
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import BrokerWanted
from raylog.actors.runtime.base import Runtime
from raylog.actors.supervisor.rules.desired import DesiredCluster
from raylog.wire.errors import BrokerNotAvailable

log = logging.getLogger(__name__)
NOTE_MS = 1_000
REFUSED_MS = 5_000
"""Delay before refused metadata is checked again: a directory may have been restored."""


class FollowedMetadata:
    """Checks updates before they are applied, and keeps the record."""

    def __init__(self, runtime: Runtime, data: DataDirectory) -> None:
        self._runtime = runtime
        self._data = data
        self._latest = data.followed
        self._saving = False
        self._writing = asyncio.Lock()
        self._wanted: dict[int, BrokerWanted] = {}
        """The wanted brokers in the last record."""
        self._last_reported = ""
        """The logged reason for the present refusal; empty if there is none."""

    @property
    def latest(self) -> Followed:
        """The latest metadata ever followed, recorded or not."""
        return self._latest

    def asking(self, image: MetadataImage, max_wait_ms: int) -> Follow:
        """Build the request to follow the metadata, given this broker's image."""
        known = image.followed if image.offset else self._latest
        return Follow(
            self._data.identity.broker_id,
            image.offset,
            max_wait_ms,
            known.epoch,
            known.metadata_id,
            known.nonce,
            known.offset,
        )

    def check(self, whole: MetadataImage) -> None:
        """Raise MetadataRefused if a snapshot's image lacks what was followed before.

        Records that continue the present image are not checked here; the controller has done so.
        """
        require_agreement(self._data.identity.broker_id, self._latest, whole)

    def applied(self, image: MetadataImage) -> None:
        """Record that this image is followed now.

        Just after a start it may be older than the last recorded one.
        """
        self._last_reported = ""
        if image.wanted != self._wanted:
            self._wanted = dict(image.wanted)
            self._runtime.start(self._note_wanted(_desired(image)), "note the brokers wanted")
        if image.offset >= self._latest.offset and image.followed != self._latest:
            self._latest = image.followed
            if not self._saving:
                self._saving = True
                self._runtime.start(self._note(), "note the metadata followed")

    def refused(self, why: MetadataRefused) -> None:
        """Log the reason for refusing metadata once, however often it is offered."""
        if self._last_reported != str(why):
            self._last_reported = str(why)
            log.error("%s", why)

    def require_accepted(self) -> None:
        """Raise BrokerNotAvailable while the controller's metadata is refused."""
        if self._last_reported:
            raise BrokerNotAvailable(self._last_reported)

    async def wait(self, why: MetadataRefused) -> None:
        """Log why metadata is refused, and wait until it should be checked again."""
        self.refused(why)
        await self._runtime.sleep(REFUSED_MS / 1000)

    async def _note(self) -> None:
        while self._data.followed != self._latest:
            await self.note_now()
            await self._runtime.sleep(NOTE_MS / 1000)
        self._saving = False

    async def _note_wanted(self, desired: DesiredCluster) -> None:
        try:
            async with self._writing:
                await self._runtime.run_blocking(self._data.note_wanted, desired.to_bytes())
        except OSError as failure:
            log.error("the wanted brokers cannot be recorded: %s", failure)

    async def note_now(self) -> None:
        """Write the record now. If the disk refuses, the next change tries again."""
        try:
            async with self._writing:
                await self._runtime.run_blocking(self._data.note_followed, self._latest)
        except OSError as failure:
            log.error("the followed metadata cannot be recorded: %s", failure)


def _desired(image: MetadataImage) -> DesiredCluster:
    brokers = tuple([image.wanted[one] for one in sorted(image.wanted)])
    return DesiredCluster(
        image.cluster_id, brokers, image.voters, image.offset, is_in_metadata=True
    )
