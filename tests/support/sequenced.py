"""An idempotent producer that chooses its own sequence numbers."""

from raylog.wire.messages.init_producer_id import InitProducerIdRequest
from raylog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from raylog.wire.records import Record, encode_batch
from tests.support.wire_client import WireClient

VERSION = 9
TIMESTAMP_MS = 1_700_000_000_000
TIMEOUT_MS = 30_000


class SequencedProducer:
    """One producer id, which may send over any connection."""

    def __init__(self, client: WireClient) -> None:
        identity = client.ask(InitProducerIdRequest(transactional_id=None), 4)
        assert identity.error_code == 0
        self._id = identity.producer_id
        self._epoch = identity.producer_epoch

    def send(
        self, client: WireClient, topic: str, sequence: int, *, partition: int = 0
    ) -> PartitionProduceResponse:
        """Send one record with this sequence number and return the response."""
        batch = encode_batch(
            [Record(0, TIMESTAMP_MS, None, b"s%d" % sequence, [])],
            producer_id=self._id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
        )
        data = [PartitionProduceData(index=partition, records=batch)]
        request = ProduceRequest(
            acks=-1,
            timeout_ms=TIMEOUT_MS,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        )
        answer = client.ask(request, VERSION).responses[0].partition_responses[0]
        assert isinstance(answer, PartitionProduceResponse)
        return answer
