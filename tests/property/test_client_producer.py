"""Whatever happens to an idempotent producer's requests: no loss, no duplicate, no disorder."""

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.client.io import run_blocking
from raylog.client.producer.core import ProducerCore
from raylog.client.settings import ProducerSettings
from raylog.wire.errors import ErrorCode
from tests.support.fake_cluster import LOST, NOTHING, FakeCluster, core_of
from tests.support.fake_logs import Logs, refused

PARTITIONS = 3
FATES = (
    "written",
    "written, answer lost",
    "lost before it was written",
    "never answered",
    "refused",
    "leader moved",
)


class Fates:
    """Gives each batch that reaches a broker its fate; in the end all goes well."""

    def __init__(self, logs: Logs, fates: list[str]) -> None:
        self.logs = logs
        self.fates = deque(fates)
        logs.refuse = [self.decide] * (len(fates) + 1_000)

    def decide(self, broker: int, topic: str, partition: int, batch: bytes) -> object:
        """What becomes of a batch."""
        fate = self.fates.popleft() if self.fates else "written"
        cluster = self.logs.cluster
        if fate == "leader moved":
            cluster.epochs[topic] = cluster.epochs.get(topic, 0) + 1
            leaders = cluster.topics[topic]
            leaders[partition] = 1 + leaders[partition] % cluster.brokers
        if cluster.topics[topic][partition] != broker:
            return refused(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        match fate:
            case "written, answer lost":
                self.logs.write(topic, partition, batch)
                return LOST
            case "lost before it was written":
                return LOST
            case "never answered":
                return NOTHING
            case "refused":
                return refused(partition, ErrorCode.NOT_ENOUGH_REPLICAS)
        return None


@settings(deadline=None, max_examples=150)
@given(
    sends=st.lists(st.integers(0, PARTITIONS - 1), max_size=60),
    fates=st.lists(st.sampled_from(FATES), max_size=25),
    batch_bytes=st.sampled_from([100, 200, 100_000]),
    in_flight_max=st.integers(1, 5),
)
def test_every_record_is_written_once_and_in_order(
    sends: list[int], fates: list[str], batch_bytes: int, in_flight_max: int
) -> None:
    cluster = FakeCluster(2, {"t": dict.fromkeys(range(PARTITIONS), 1)})
    logs = Logs(cluster)
    producer = ProducerCore(
        core_of(cluster),
        ProducerSettings(
            batch_bytes=batch_bytes,
            in_flight_max=in_flight_max,
            delivery_timeout_ms=10**9,
        ),
    )
    run_blocking(producer.prepare("t"))
    Fates(logs, fates)
    for number, partition in enumerate(sends):
        producer.append("t", b"%d" % number, partition=partition)
        run_blocking(producer.step(everything=batch_bytes == 100))
    run_blocking(producer.flush())
    for partition in range(PARTITIONS):
        expected = [b"%d" % n for n, to in enumerate(sends) if to == partition]
        assert logs.values.get(("t", partition), []) == expected
    assert producer.delivered_count == len(sends)
    assert logs.producer_ids <= 1
