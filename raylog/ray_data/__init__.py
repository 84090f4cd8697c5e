"""Ray Data: reads topics as datasets and writes datasets to topics exactly once.

See docs/ray-data.md.

    dataset = read("127.0.0.1:9092", "events")
    write(dataset.map_batches(f), "127.0.0.1:9092", "results", "sink", job_id="2026-11-21")

Public names are loaded on first use (PEP 562), because importing Ray Data takes a second.
"""

from typing import TYPE_CHECKING

from raylog.extras import needs
from raylog.lazy import lazy_names

if TYPE_CHECKING:
    from raylog.client.cluster import TopicPartition
    from raylog.ray_data.continuing import MicroBatch, MicroBatches, read_continuing
    from raylog.ray_data.planning import BadBound, OffsetsUnavailable
    from raylog.ray_data.reading import ReadSettings
    from raylog.ray_data.sink import Sink, write
    from raylog.ray_data.source import positions, read
    from raylog.sink.batches import BatchFailed, SourceMismatch, StateLost
    from raylog.sink.driver import SinkSettings
    from raylog.sink.writer import WriterSettings

__all__ = [
    "BadBound",
    "BatchFailed",
    "MicroBatch",
    "MicroBatches",
    "OffsetsUnavailable",
    "ReadSettings",
    "Sink",
    "SinkSettings",
    "SourceMismatch",
    "StateLost",
    "TopicPartition",
    "WriterSettings",
    "positions",
    "read",
    "read_continuing",
    "write",
]

_get, __dir__ = lazy_names(
    __name__,
    {
        "raylog.client.cluster": ("TopicPartition",),
        "raylog.ray_data.continuing": ("MicroBatch", "MicroBatches", "read_continuing"),
        "raylog.ray_data.planning": ("BadBound", "OffsetsUnavailable"),
        "raylog.ray_data.reading": ("ReadSettings",),
        "raylog.ray_data.sink": ("Sink", "write"),
        "raylog.ray_data.source": ("positions", "read"),
        "raylog.sink.batches": ("BatchFailed", "SourceMismatch", "StateLost"),
        "raylog.sink.driver": ("SinkSettings",),
        "raylog.sink.writer": ("WriterSettings",),
    },
)


def __getattr__(name: str) -> object:
    """Load a public name's module at its first use."""
    with needs("ray", "raylog.ray_data"), needs("arrow", "raylog.ray_data"):
        return _get(name)
