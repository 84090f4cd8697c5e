"""A leader and two followers as separate processes, joined by links."""

import pytest
import uvloop

from bench.replication import measure


@pytest.mark.long
def test_replication_cost_is_measured_at_each_replica() -> None:
    found = uvloop.run(measure(partitions=2, batch_kib=4, megabytes=1))
    assert found["leader_us"] > 0
    assert found["follower_us"] > 0
    assert found["mb_per_s"] > 0
