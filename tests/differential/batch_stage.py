"""Where batches are produced to one broker, read back and looked up by time.

The transcript has the answer, what the broker stores, and what lookups by time find. Times are
written as `T+n`, as `now+n` in batches made when the case was played, or as "append time".
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from raylog.wire.errors import DecodeError, KafkaError
from raylog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from raylog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from raylog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from raylog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from raylog.wire.records import BatchHeader, check_crc, iter_batches
from tests.differential.batch_cases import Case, T
from tests.differential.normalized import Plain, error_name
from tests.differential.playing import Transcripts
from tests.support.wire_client import WireClient

RECORDED = Path(__file__).with_name("apache-kafka-4.3.1-batches.json")
PRODUCE, FETCH, LIST_OFFSETS, CREATE_TOPICS = 12, 12, 9, 7
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
ASKED_MS = (0, T - 1, T, T + 1, T + 4, T + 5, T + 6, T + 30, T + 101)
_NEAR_T_MS = 10**8
_APPENDED_MS = 60_000
_FETCHED_BYTES = 64 << 20


def play(address: str, cases: Iterable[Case]) -> Transcripts:
    """Play cases to a broker."""
    host, _, port = address.rpartition(":")
    with WireClient(host, int(port)) as client:
        return {
            case.name: _Played(client, case, number).play() for number, case in enumerate(cases)
        }


class _Played:
    """One case."""

    def __init__(self, client: WireClient, case: Case, number: int) -> None:
        self._client = client
        self._case = case
        self._topic = f"batches-{number}"
        self._now_ms = time.time_ns() // 10**6
        self._is_append_time = case.configs.get("message.timestamp.type") == "LogAppendTime"

    def play(self) -> list[dict[str, list[Plain]]]:
        self._create()
        said = {
            "answered": [self._produce(build(self._now_ms)) for build in self._case.batches],
            "stored": self._stored(),
        }
        if not self._is_append_time:
            said["found"] = [self._found()]
        return [said]

    def _create(self) -> None:
        configs = [CreatableTopicConfig(name=k, value=v) for k, v in self._case.configs.items()]
        topic = CreatableTopic(
            name=self._topic, num_partitions=1, replication_factor=1, configs=configs
        )
        answer = self._client.ask(
            CreateTopicsRequest(topics=[topic], timeout_ms=10_000), CREATE_TOPICS
        )
        assert not answer.topics[0].error_code, answer
        deadline = time.monotonic() + 20
        while self._list_offsets(EARLIEST).error_code:
            assert time.monotonic() < deadline, "the topic has no leader"
            time.sleep(0.01)

    def _produce(self, batch: bytes) -> Plain:
        data = PartitionProduceData(index=0, records=batch)
        request = ProduceRequest(
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=self._topic, partition_data=[data])],
        )
        (answer,) = self._client.ask(request, PRODUCE).responses[0].partition_responses
        found: dict[str, Plain] = {"error": error_name(answer.error_code)}
        if answer.record_errors:
            found["records"] = [one.batch_index for one in answer.record_errors]
        if not answer.error_code:
            found["offset"] = answer.base_offset
            found["append time"] = self._time(answer.log_append_time_ms)
        return found

    def _stored(self) -> list[Plain]:
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=_FETCHED_BYTES)
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=_FETCHED_BYTES,
            session_epoch=-1,
            topics=[FetchTopic(topic=self._topic, partitions=[partition])],
        )
        answer = self._client.ask(request, FETCH).responses[0].partitions[0]
        return [self._batch(header, batch) for header, batch in iter_batches(answer.records or b"")]

    def _batch(self, header: BatchHeader, batch: memoryview) -> Plain:
        try:
            check_crc(batch, header)
        except (KafkaError, DecodeError) as failure:
            return {"unreadable": str(failure)}
        return {
            "offsets": [header.base_offset, header.last_offset],
            "records": header.record_count,
            "attributes": header.attributes,
            "base": self._time(header.base_timestamp),
            "largest": self._time(header.max_timestamp),
            "producer": [header.producer_id, header.producer_epoch, header.base_sequence],
        }

    def _found(self) -> Plain:
        asked = {"latest": LATEST, "largest": MAX_TIMESTAMP}
        asked |= {str(self._time(at)): at for at in ASKED_MS}
        asked["now-4000"] = self._now_ms - 4000
        found = {}
        for name, timestamp in asked.items():
            answer = self._list_offsets(timestamp)
            found[name] = (
                [answer.offset, self._time(answer.timestamp)]
                if not answer.error_code
                else error_name(answer.error_code)
            )
        return found

    def _list_offsets(self, timestamp: int) -> Any:
        partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=self._topic, partitions=[partition])]
        )
        return self._client.ask(request, LIST_OFFSETS).topics[0].partitions[0]

    def _time(self, timestamp: int) -> Plain:
        if abs(timestamp - T) < _NEAR_T_MS:
            return f"T{timestamp - T:+d}"
        since = timestamp - self._now_ms
        if self._is_append_time and 0 <= since < _APPENDED_MS:
            return "append time"
        return f"now{since:+d}" if timestamp > T else timestamp
