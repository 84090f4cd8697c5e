"""Ray Data: topics as datasets, and datasets to topics exactly once (docs/ray-data.md).

    dataset = read("127.0.0.1:9092", "events")
    write(dataset.map_batches(f), "127.0.0.1:9092", "results", "sink", job_id="2026-11-21")

Names are loaded when they are first used (PEP 562): Ray Data takes a second to import.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from raylog.extras import needs

if TYPE_CHECKING:
    from raylog.client.cluster import TopicPartition
    from raylog.ray_data.continuing import MicroBatch, MicroBatches, read_continuing
    from raylog.ray_data.planning import BadBound, OffsetsUnavailable
    from raylog.ray_data.reading import ReadSettings
    from raylog.ray_data.sink import Sink, write
    from raylog.ray_data.source import positions, read
    from raylog.raydp_jobs.batches import BatchFailed, SourceMismatch, StateLost
    from raylog.raydp_jobs.driver import SinkSettings
    from raylog.raydp_jobs.writer import WriterSettings

_HOMES = {
    "raylog.client.cluster": ("TopicPartition",),
    "raylog.ray_data.continuing": ("MicroBatch", "MicroBatches", "read_continuing"),
    "raylog.ray_data.planning": ("BadBound", "OffsetsUnavailable"),
    "raylog.ray_data.reading": ("ReadSettings",),
    "raylog.ray_data.sink": ("Sink", "write"),
    "raylog.ray_data.source": ("positions", "read"),
    "raylog.raydp_jobs.batches": ("BatchFailed", "SourceMismatch", "StateLost"),
    "raylog.raydp_jobs.driver": ("SinkSettings",),
    "raylog.raydp_jobs.writer": ("WriterSettings",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

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


def __getattr__(name: str) -> object:
    """Load a public name's module when it is first used."""
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'raylog.ray_data' has no attribute {name!r}")
    with needs("ray", "raylog.ray_data"), needs("arrow", "raylog.ray_data"):
        return getattr(import_module(home), name)


def __dir__() -> list[str]:
    """Public names, loaded or not."""
    return sorted(__all__)
