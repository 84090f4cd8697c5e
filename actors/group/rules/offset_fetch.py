"""OffsetFetch 1-10: one group up to version 7, several from version 8 on (KIP-709)."""

from __future__ import annotations

from itertools import chain

from raylog.actors.group.rules import offsets
from raylog.actors.group.rules.all_offsets import as_single
from raylog.actors.group.rules.existing import ExistingTopics
from raylog.actors.group.rules.failures import SEVERAL_GROUPS_SINCE
from raylog.actors.group.rules.gradual import GradualResponse
from raylog.actors.group.rules.listing import Groups
from raylog.actors.group.rules.offset_store import OffsetStore
from raylog.wire.errors import KafkaError, error_of
from raylog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)


def fetch_offsets(
    groups: Groups,
    store: OffsetStore,
    existing: ExistingTopics,
    request: OffsetFetchRequest,
    version: int,
) -> GradualResponse[OffsetFetchResponse]:
    """Fetch the offsets of all requested groups; raises the error of a request up to version 7."""
    if version < SEVERAL_GROUPS_SINCE:
        one = _group(groups, store, existing, offsets.as_group(request), request, version)
        if one.response.error_code:
            raise error_of(one.response.error_code)
        return as_single(one)
    found = [
        _group(groups, store, existing, request_group, request, version)
        for request_group in request.groups
    ]
    rest = chain.from_iterable(one.rest for one in found)
    return GradualResponse(OffsetFetchResponse(groups=[one.response for one in found]), rest)


def _group(
    groups: Groups,
    store: OffsetStore,
    existing: ExistingTopics,
    request_group: OffsetFetchRequestGroup,
    request: OffsetFetchRequest,
    version: int,
) -> GradualResponse[OffsetFetchResponseGroup]:
    group = groups.get(request_group.group_id)
    try:
        if group is not None:
            group.check_fetch(request_group.member_id, request_group.member_epoch)
    except KafkaError as failure:
        code = int(failure.code)
        return GradualResponse(
            OffsetFetchResponseGroup(group_id=request_group.group_id, error_code=code), iter(())
        )
    stable = request.require_stable
    unstable = store.pending.of(request_group.group_id) if stable else ()
    look = store.of if stable else store.committed
    return offsets.fetch(existing, look(request_group.group_id), unstable, request_group, version)
