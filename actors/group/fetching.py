"""OffsetFetch 1-10: one group up to version 7, several from version 8 on (KIP-709)."""

from __future__ import annotations

from itertools import chain

from raylog.actors.group import offsets
from raylog.actors.group.all_offsets import as_single
from raylog.actors.group.api import SEVERAL_GROUPS_SINCE
from raylog.actors.group.existing import ExistingTopics
from raylog.actors.group.listing import Groups
from raylog.actors.group.offset_store import OffsetStore
from raylog.actors.group.telling import Telling
from raylog.wire.errors import KafkaError, error_of
from raylog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)


def fetching(
    groups: Groups,
    store: OffsetStore,
    existing: ExistingTopics,
    request: OffsetFetchRequest,
    version: int,
) -> Telling[OffsetFetchResponse]:
    """The offsets of all groups that are asked about. Raises what refuses an older request."""
    if version < SEVERAL_GROUPS_SINCE:
        one = _group(groups, store, existing, offsets.as_group(request), request, version)
        if one.response.error_code:
            raise error_of(one.response.error_code)
        return as_single(one)
    found = [_group(groups, store, existing, asked, request, version) for asked in request.groups]
    rest = chain.from_iterable(one.rest for one in found)
    return Telling(OffsetFetchResponse(groups=[one.response for one in found]), rest)


def _group(
    groups: Groups,
    store: OffsetStore,
    existing: ExistingTopics,
    asked: OffsetFetchRequestGroup,
    request: OffsetFetchRequest,
    version: int,
) -> Telling[OffsetFetchResponseGroup]:
    group = groups.get(asked.group_id)
    try:
        if group is not None:
            group.check_fetch(asked.member_id, asked.member_epoch)
    except KafkaError as failure:
        code = int(failure.code)
        return Telling(OffsetFetchResponseGroup(group_id=asked.group_id, error_code=code), iter(()))
    stable = request.require_stable
    unstable = store.pending.of(asked.group_id) if stable else ()
    look = store.of if stable else store.committed
    return offsets.fetch(existing, look(asked.group_id), unstable, asked, version)
