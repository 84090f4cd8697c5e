"""ApiVersions 0-4: the supported versions (KIP-35, KIP-511) and the features (KIP-584).

v3 adds the client's software name; v4 allows features whose lowest version is 0.
"""

from __future__ import annotations

import re

from raylog.actors.gateway.context import RequestContext
from raylog.actors.metadata.features import SUPPORTED, finalized
from raylog.wire.api import ApiKey
from raylog.wire.errors import InvalidRequest
from raylog.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

SOFTWARE_SINCE = 3
SOFTWARE_MAX = 255
"""Characters of a name or version that a connection keeps."""
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
TELEMETRY = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})
"""Announced only while there are subscriptions to client metrics. Otherwise clients would ask again
and again, and librdkafka logs a line each time."""
MIN_VERSION_ZERO_SINCE = 4
ANNOUNCED_FROM = {int(ApiKey.PRODUCE): 0}
"""Older versions of librdkafka assume that compression is not supported unless Produce 0 is
announced, although they send newer versions. Apache Kafka 4 announces it for that reason without
serving it."""


def api_versions(
    context: RequestContext, request: ApiVersionsRequest | None
) -> ApiVersionsResponse:
    """Answer from the table of handlers; `request` is None for a version that is unknown here.

    Raises InvalidRequest for a malformed software name, as in Kafka.
    """
    if request is not None and context.version >= SOFTWARE_SINCE:
        software = (request.client_software_name, request.client_software_version)
        if not all(map(_SOFTWARE.fullmatch, software)):
            raise InvalidRequest(
                f"the client's software name and version are {software}, expected are letters, "
                "digits, and between them '-' and '.'"
            )
        context.connection.software = (software[0][:SOFTWARE_MAX], software[1][:SOFTWARE_MAX])
    image = context.gateway.cluster.image
    zero_allowed = context.version >= MIN_VERSION_ZERO_SINCE
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(
                api_key=key,
                min_version=ANNOUNCED_FROM.get(key, versions.start),
                max_version=versions.stop - 1,
            )
            for key, versions in context.gateway.served.items()
            if key not in TELEMETRY or context.gateway.telemetry.is_wanted
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=levels.low, max_version=levels.high)
            for name, levels in SUPPORTED.items()
            if levels.low > 0 or zero_allowed
        ],
        finalized_features_epoch=image.features_epoch,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in finalized(image.features).items()
        ],
    )
