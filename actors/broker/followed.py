"""Which metadata a broker follows: it refuses what contradicts what it has followed before.

What was followed is noted in the data directory soon after it has changed, and not again before
NOTE_MS have passed: the note bounds what may be lost unnoticed, and need not be exact.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - part of the broker's shell: one note is written at a time
import logging

from raylog.actors.broker.identity import DataDirectory
from raylog.actors.controller.api import Follow
from raylog.actors.metadata.followed import Followed, MetadataRefused, require_agreement
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import BrokerWanted
from raylog.actors.runtime.base import Runtime
from raylog.actors.supervisor.desired import DesiredCluster

log = logging.getLogger(__name__)
NOTE_MS = 1_000
REFUSED_MS = 5_000
"""Until metadata that was refused is looked at again: a directory may have been restored."""


class FollowedMetadata:
    """Checks updates before they are applied, and keeps the note."""

    def __init__(self, runtime: Runtime, data: DataDirectory) -> None:
        self._runtime = runtime
        self._data = data
        self._latest = data.followed
        self._noting = False
        self._writing = asyncio.Lock()
        self._wanted: dict[int, BrokerWanted] = {}
        """As noted last."""
        self._told = ""
        """Why metadata was refused last."""

    @property
    def latest(self) -> Followed:
        """The most that was ever followed, noted or not yet."""
        return self._latest

    def asking(self, image: MetadataImage, max_wait_ms: int) -> Follow:
        """What to ask the controller for, given what is here."""
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

        Records that follow on what is here need no look: the controller has compared it.
        """
        require_agreement(self._data.identity.broker_id, self._latest, whole)

    def applied(self, image: MetadataImage) -> None:
        """This much is followed now; at a start that may be less than before for a while."""
        self._told = ""
        if image.wanted != self._wanted:
            self._wanted = dict(image.wanted)
            self._runtime.start(self._note_wanted(_desired(image)), "note the brokers wanted")
        if image.offset >= self._latest.offset and image.followed != self._latest:
            self._latest = image.followed
            if not self._noting:
                self._noting = True
                self._runtime.start(self._note(), "note the metadata followed")

    def refused(self, why: MetadataRefused) -> None:
        """Say once why metadata is refused, however often it is offered."""
        if self._told != str(why):
            self._told = str(why)
            log.error("%s", why)

    async def wait(self, why: MetadataRefused) -> None:
        """The same, and wait until it may be looked at again."""
        self.refused(why)
        await self._runtime.sleep(REFUSED_MS / 1000)

    async def _note(self) -> None:
        while self._data.followed != self._latest:
            await self.note_now()
            await self._runtime.sleep(NOTE_MS / 1000)
        self._noting = False

    async def _note_wanted(self, desired: DesiredCluster) -> None:
        try:
            async with self._writing:
                await self._runtime.run_blocking(self._data.note_wanted, desired.to_bytes())
        except OSError as failure:
            log.error("the brokers wanted cannot be noted: %s", failure)

    async def note_now(self) -> None:
        """Note it without delay. A disk that takes no note is tried again with the next change."""
        try:
            async with self._writing:
                await self._runtime.run_blocking(self._data.note_followed, self._latest)
        except OSError as failure:
            log.error("the metadata followed cannot be noted: %s", failure)


def _desired(image: MetadataImage) -> DesiredCluster:
    brokers = tuple([image.wanted[one] for one in sorted(image.wanted)])
    return DesiredCluster(image.cluster_id, brokers, image.voters, image.offset, told=True)
