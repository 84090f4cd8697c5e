"""What the sinks of a process have written, as Prometheus metrics."""

from __future__ import annotations

import uuid
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from raylog.sink.counts import FAILED, REPEATED, WRITTEN, counts_of, listen


def scraped(port: int, sink_id: str) -> dict[str, float]:
    """Samples of a sink by name, and by what remains of their labels."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {
            "/".join([sample.name, *(v for k, v in sample.labels.items() if k != "sink")]): (
                sample.value
            )
            for family in families
            for sample in family.samples
            if sample.labels.get("sink") == sink_id
        }


def test_batches_of_a_sink_are_reported() -> None:
    sink_id = f"sink-{uuid.uuid4()}"
    port = listen("127.0.0.1", 0)
    counts = counts_of(sink_id)
    assert scraped(port, sink_id)["raylog_sink_last_batch_time_seconds"] == 0
    counts.ended(WRITTEN, 2, 100, 0.3)  # a run was lost
    counts.ended(REPEATED, 0, 0, 0.1)
    counts.ended(FAILED, 5, 70, 9.0)
    counts_of(sink_id).ended(WRITTEN, 1, 20, 3.0)
    found = scraped(port, sink_id)
    assert {name: found[name] for name in found if "bucket" not in name and "last" not in name} == {
        "raylog_sink_batches_total/written": 2,
        "raylog_sink_batches_total/repeated": 1,
        "raylog_sink_batches_total/failed": 1,
        "raylog_sink_rows_total": 120,
        "raylog_sink_runs_total": 8,
        "raylog_sink_batch_seconds_count": 2,
        "raylog_sink_batch_seconds_sum": 3.3,
    }
    assert found["raylog_sink_batch_seconds_bucket/0.5"] == 1
    assert found["raylog_sink_last_batch_time_seconds"] > 1_700_000_000
