"""A sink whose last batch was written by an earlier commit, in a directory that it has left.

`data/<commit>/sink.tar.xz` is of one broker. By that commit's `SinkDriver` the sink `s` has written
batches 0 and 1 of query `q`: a row to each partition of `out`, of ten records of `in-0` each.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from raylog.client import BlockingClient, TopicPartition
from raylog.client.io import run_blocking
from raylog.sink.batches import Batch, KafkaRange, SourceMismatch
from raylog.sink.lookup import look_up_state, name_of
from raylog.sink.marks import Mark
from raylog.testing import EmbeddedBroker
from tests.spark.driving import Driver, driving
from tests.spark.reading import values

DATA = Path(__file__).parent / "data"
KEPT = {
    "log.retention.ms": "-1",
    "offsets.retention.minutes": "2147483647",
    "transactional.id.expiration.ms": "2147483647",
}
"""The archives are older than what is kept by default."""
SOURCE = TopicPartition("in", 0)


@pytest.mark.parametrize("commit", sorted(path.name for path in DATA.iterdir()))
def test_a_query_goes_on_without_a_loss_or_a_duplicate(commit: str, tmp_path: Path) -> None:
    shutil.unpack_archive(DATA / commit / "sink.tar.xz", tmp_path)

    def batch(driver: Driver, batch_id: int, start: int, end: int) -> Batch:
        cluster_id = run_blocking(driver.transactions.cluster_id())
        read = KafkaRange({SOURCE: start}, {SOURCE: end}, cluster_id)
        return Batch(Mark("q", batch_id), driver.keys, [read])

    with EmbeddedBroker(data=tmp_path, settings=KEPT) as broker:
        with driving(broker.bootstrap, "out", sink_id="s") as driver:
            driver.partitions = 2
            found = look_up_state(driver.core.settings, "s", ["out"])
            assert found is not None
            assert list(found.ends().values()) == [20]
            with pytest.raises(SourceMismatch, match="committed up to 20, found 25"):
                driver.write(batch(driver, 1, 10, 25))
            with pytest.raises(SourceMismatch, match="comes after batch 1"):
                driver.write(batch(driver, 0, 0, 10))
            assert not driver.write(batch(driver, 1, 10, 20))
            assert driver.write(batch(driver, 2, 20, 30), rows=1)
        with BlockingClient(broker.bootstrap) as client:
            client.delete_groups([name_of("s")])  # as if its offsets had expired
        with driving(broker.bootstrap, "out", sink_id="s") as driver:
            driver.partitions = 2
            assert not driver.write(batch(driver, 2, 20, 30))
        assert values(broker.bootstrap, "out") == [b"q-0"] * 2 + [b"q-1"] * 2 + [
            b"q-2-0-0",
            b"q-2-1-0",
        ]
