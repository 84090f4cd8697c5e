"""Which versions of the transactional requests a sink speaks: all of one kind, chosen once.

| request | transaction version 1 | transaction version 2 (KIP-890) |
|---|---|---|
| AddPartitionsToTxn | 0-3, before a partition's first Produce | not sent |
| Produce | 3-11 | 12: adds the partition itself |
| AddOffsetsToTxn | 0-4, before TxnOffsetCommit | not sent |
| TxnOffsetCommit | 2-4 | 5: adds the group itself |
| EndTxn | 0-4 | 5: tells the id and epoch to go on with |
| InitProducerId | before every batch | once, and after every failure |

Mixed, they would let a zombie's batch into the next commit. Produce 13 names topics by id; one
that was made anew under its old name is then another topic to it, so 12 it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from raylog.client.core import Core
from raylog.client.errors import NotSupported
from raylog.wire.api import ApiKey
from raylog.wire.schema import layout_of

R = TypeVar("R")

FEATURE = "transaction.version"
_SECOND = 2


@dataclass(frozen=True, slots=True)
class Protocol:
    """The versions of one kind; both ends inclusive. Requests it does not list take the newest."""

    registers: bool
    """Whether partitions and group are added by requests of their own."""
    keeps_identity: bool
    """Whether EndTxn tells an epoch that nobody has used yet."""
    versions: Mapping[ApiKey, tuple[int, int]]

    async def ask(
        self, core: Core, node_id: int, request: object, expected: type[R], timeout_ms: float
    ) -> R:
        """Ask a broker in a version of this kind; raises NotSupported if it knows none."""
        at_most = await self.version_for(core, node_id, request)
        return await core.ask(node_id, request, expected, timeout_ms=timeout_ms, at_most=at_most)

    async def version_for(self, core: Core, node_id: int, request: object) -> int | None:
        """The version in which to send a request; None: the newest. Raises NotSupported."""
        api_key = layout_of(type(request)).api_key
        assert api_key is not None, f"{type(request).__name__} is not a request"
        allowed = self.versions.get(api_key)
        if allowed is None:
            return None
        first, last = allowed
        found = await core.version_on(node_id, api_key, last)
        if found < first:
            raise NotSupported(
                f"transactions need {api_key.name} {first} to {last}, "
                f"broker {node_id} speaks up to {found}"
            )
        return found


FIRST = Protocol(
    registers=True,
    keeps_identity=False,
    versions={
        ApiKey.ADD_PARTITIONS_TO_TXN: (0, 3),
        ApiKey.PRODUCE: (3, 11),
        ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
        ApiKey.TXN_OFFSET_COMMIT: (2, 4),
        ApiKey.END_TXN: (0, 4),
    },
)
SECOND = Protocol(
    registers=False,
    keeps_identity=True,
    versions={
        ApiKey.PRODUCE: (12, 12),
        ApiKey.TXN_OFFSET_COMMIT: (5, 5),
        ApiKey.END_TXN: (5, 5),
    },
)


def protocol_for(level: int) -> Protocol:
    """The kind of a cluster whose finalized feature `transaction.version` is at `level`."""
    return SECOND if level >= _SECOND else FIRST


async def choose_protocol(core: Core) -> Protocol:
    """Ask any broker what the cluster has agreed on."""
    await core.repeat(lambda: core.refresh([]))
    return protocol_for(core.feature_level(FEATURE))
