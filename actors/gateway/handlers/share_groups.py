"""Requests about share groups (KIP-932), answered as by Apache Kafka where they are not in use.

That is where the feature `share.version` has level 0. The code is UNSUPPORTED_VERSION then.
ShareGroupHeartbeat and ShareGroupDescribe 1, ShareFetch and ShareAcknowledge 1-2,
DescribeShareGroupOffsets 0-1, AlterShareGroupOffsets and DeleteShareGroupOffsets 0.
Left out: share groups.
"""

from __future__ import annotations

from raylog.actors.gateway.context import RequestContext
from raylog.wire.errors import ErrorCode
from raylog.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from raylog.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from raylog.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)
from raylog.wire.messages.share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from raylog.wire.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from raylog.wire.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from raylog.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

_UNSUPPORTED = int(ErrorCode.UNSUPPORTED_VERSION)
_MESSAGE = "The version of API is not supported."


def share_group_heartbeat(
    _context: RequestContext, _request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    """There are no share groups."""
    return ShareGroupHeartbeatResponse(error_code=_UNSUPPORTED)


def share_group_describe(
    _context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    """There are no share groups."""
    return ShareGroupDescribeResponse(
        groups=[
            DescribedGroup(error_code=_UNSUPPORTED, group_id=group_id)
            for group_id in request.group_ids
        ]
    )


def share_fetch(_context: RequestContext, _request: ShareFetchRequest) -> ShareFetchResponse:
    """There are no share groups."""
    return ShareFetchResponse(error_code=_UNSUPPORTED)


def share_acknowledge(
    _context: RequestContext, _request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse:
    """There are no share groups."""
    return ShareAcknowledgeResponse(error_code=_UNSUPPORTED)


def describe_share_group_offsets(
    _context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    """There are no share groups."""
    return DescribeShareGroupOffsetsResponse(
        groups=[
            DescribeShareGroupOffsetsResponseGroup(group_id=one.group_id, error_code=_UNSUPPORTED)
            for one in request.groups
        ]
    )


def alter_share_group_offsets(
    _context: RequestContext, _request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    """There are no share groups."""
    return AlterShareGroupOffsetsResponse(error_code=_UNSUPPORTED, error_message=_MESSAGE)


def delete_share_group_offsets(
    _context: RequestContext, _request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    """There are no share groups."""
    return DeleteShareGroupOffsetsResponse(error_code=_UNSUPPORTED, error_message=_MESSAGE)
