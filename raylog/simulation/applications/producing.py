"""Applications that write with the real producer."""

from __future__ import annotations

from functools import partial

from raylog.client.cluster import TopicPartition
from raylog.client.core import Core
from raylog.client.interceptors import RecordMetadata
from raylog.client.producer.aio import AsyncProducer
from raylog.client.producer.core import ProducerCore
from raylog.client.settings import ProducerSettings
from raylog.simulation.applications.scene import Scene
from raylog.simulation.applications.seats import EXPECTED, Life, check_sound
from raylog.wire.compression import Codec

BURSTS = (1, 1, 3, 8)
PAUSES_MS = (100.0, 300.0, 300.0, 800.0)
BATCH_BYTES = (150, 400, 128 * 1024)
DELIVERY_TIMEOUTS_MS = (1_500, 120_000, 120_000)


class Writing:
    """One idempotent producer."""

    def __init__(self, life: Life, scene: Scene, topic: str) -> None:
        self._life = life
        self._scene = scene
        self._topic = topic
        self._random = life.random
        self._values = scene.history.written[life.label] = []
        self._pause_ms = self._random.choice(PAUSES_MS)

    async def run(self) -> None:
        """Write until the life is over, then flush."""
        io = self._life.io()
        core = Core(io, self._scene.client_settings(self._random))
        producer = AsyncProducer.over(ProducerCore(core, self._settings()), io)
        while not self._life.is_over:
            try:
                for _ in range(self._random.choice(BURSTS)):
                    await self._send(producer)
            except EXPECTED as failure:
                check_sound(failure)
            await io.pause(self._pause_ms * self._random.random())
        try:
            await producer.close()
        except EXPECTED as failure:
            check_sound(failure)

    def _settings(self) -> ProducerSettings:
        draw = self._random.choice
        return ProducerSettings(
            codec=draw((Codec.NONE, Codec.NONE, Codec.GZIP)),
            batch_bytes=draw(BATCH_BYTES),
            linger_ms=draw((0, 5, 50)),
            in_flight_max=draw((1, 2, 5, 5)),
            delivery_timeout_ms=draw(DELIVERY_TIMEOUTS_MS),
            max_block_ms=5_000,
        )

    async def _send(self, producer: AsyncProducer[bytes, bytes]) -> None:
        count = len(self._values)
        padding = b"." * self._random.randrange(60)
        value = b"%s/%d %s" % (self._life.label.encode(), count, padding)
        self._values.append(value)
        keys = self._scene.partitions(self._topic)
        draw = self._random.random()
        await producer.send(
            self._topic,
            value,
            key=b"key %d" % self._random.randrange(9) if draw < 0.3 else None,
            timestamp_ms=self._life.runtime.now_ms(),
            partition=self._random.choice(keys).partition if draw > 0.6 else None,
            on_delivery=partial(self._ended, value),
        )

    def _ended(self, value: bytes, metadata: RecordMetadata, failure: Exception | None) -> None:
        if failure is None:
            key = TopicPartition(metadata.topic, metadata.partition)
            self._scene.written(key, metadata.offset, value)
        else:
            check_sound(failure)
