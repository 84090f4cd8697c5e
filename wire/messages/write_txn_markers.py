"""WriteTxnMarkers, API key 27: write commit or abort markers, sent by a coordinator.

v1 is flexible.
v2 adds the transaction version, which decides how leaders check the epoch (KIP-1228).
"""

from raylog.wire.api import ApiKey
from raylog.wire.schema import BOOL, INT8, INT16, INT32, INT64, STRING, array, message, struct, wire


@struct
class WritableTxnMarkerTopic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partition_indexes: list[int] = wire(array(INT32))


@struct
class WritableTxnMarker:
    """The end of one transaction."""

    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    transaction_result: bool = wire(BOOL)  # true: commit
    topics: list[WritableTxnMarkerTopic] = wire(array(WritableTxnMarkerTopic))
    coordinator_epoch: int = wire(INT32)  # fences markers of an older coordinator
    # 0 or 1: shared epochs; 2: an epoch per transaction (KIP-1228)
    transaction_version: int = wire(INT8, "2+", ignorable=True)


@message(ApiKey.WRITE_TXN_MARKERS, versions="1-2", flexible="1+")
class WriteTxnMarkersRequest:
    """The markers to write."""

    markers: list[WritableTxnMarker] = wire(array(WritableTxnMarker))


@struct
class WritableTxnMarkerPartitionResult:
    """The outcome for one partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@struct
class WritableTxnMarkerTopicResult:
    """The outcome for one topic."""

    name: str = wire(STRING)
    partitions: list[WritableTxnMarkerPartitionResult] = wire(
        array(WritableTxnMarkerPartitionResult)
    )


@struct
class WritableTxnMarkerResult:
    """The outcome for one transaction."""

    producer_id: int = wire(INT64)
    topics: list[WritableTxnMarkerTopicResult] = wire(array(WritableTxnMarkerTopicResult))


@message(ApiKey.WRITE_TXN_MARKERS, versions="1-2", flexible="1+")
class WriteTxnMarkersResponse:
    """The outcomes."""

    markers: list[WritableTxnMarkerResult] = wire(array(WritableTxnMarkerResult))
