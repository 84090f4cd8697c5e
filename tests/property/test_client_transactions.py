"""Whatever happens to a transactional producer's requests: what it committed is there once.

Some fates break a transaction. It is aborted then, and the next one begins.
"""

from collections import deque
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from raylog.client.cluster import TopicPartition
from raylog.client.consumer.membership import GroupMetadata
from raylog.client.errors import AbortRequired
from raylog.client.io import run_blocking
from raylog.client.producer.core import ProducerCore
from raylog.client.settings import ProducerSettings
from raylog.wire.api import ApiKey
from raylog.wire.errors import ErrorCode, TransactionAbortable
from tests.worlds.client.cluster import LOST, NOTHING, FakeCluster, core_of
from tests.worlds.client.producer_partitions import refused
from tests.worlds.client.transactions import TRANSACTIONAL_ID, Transactions

PARTITIONS = 2
GROUP = GroupMetadata("g")
BATCH_FATES = (
    "written",
    "written, answer lost",
    "lost before it was written",
    "never answered",
    "refused for now",
    "refused for good",
    "out of order",
)
COORDINATORS = (
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
)
ANSWERS = (
    LOST,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.TRANSACTION_ABORTABLE,
)


class Fates:
    """Decides the fate of each batch that reaches a broker. At the end all succeed."""

    def __init__(self, broker: Transactions, fates: list[str]) -> None:
        self.broker = broker
        self.fates = deque(fates)
        broker.logs.refuse = [self.decide] * (len(fates) + 1_000)

    def decide(self, broker: int, topic: str, partition: int, batch: bytes) -> object:
        """The fate of a batch."""
        match self.fates.popleft() if self.fates else "written":
            case "written, answer lost":
                self.broker.logs.write(topic, partition, batch)
                return LOST
            case "lost before it was written":
                return LOST
            case "never answered":
                return NOTHING
            case "refused for now":
                return refused(partition, ErrorCode.NOT_ENOUGH_REPLICAS)
            case "refused for good":
                return refused(partition, ErrorCode.MESSAGE_TOO_LARGE)
            case "out of order":
                return refused(partition, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        return None


def run_transaction(producer: ProducerCore, sends: list[int], first: int, *, commit: bool) -> bool:
    """Send numbered records and one offset. Returns whether they were committed."""
    producer.begin_transaction()
    try:
        for number, partition in enumerate(sends, first):
            producer.append("t", b"%d" % number, partition=partition)
            run_blocking(producer.step(everything=True))
        offsets = {TopicPartition("t", 0): first + len(sends)}
        run_blocking(producer.send_offsets_to_transaction(offsets, GROUP))
        if commit:
            run_blocking(producer.commit_transaction())
            return True
    except AbortRequired:
        pass
    abort(producer)
    return False


def abort(producer: ProducerCore) -> None:
    """Abort, as often as the coordinator asks for it."""
    while producer.has_open_transaction:
        with suppress(TransactionAbortable):
            run_blocking(producer.abort_transaction())


@given(
    version=st.sampled_from([1, 2]),
    transactions=st.lists(
        st.tuples(st.lists(st.integers(0, PARTITIONS - 1), max_size=8), st.booleans()), max_size=6
    ),
    fates=st.lists(st.sampled_from(BATCH_FATES), max_size=15),
    answers=st.lists(
        st.tuples(st.sampled_from(COORDINATORS), st.sampled_from(ANSWERS)), max_size=10
    ),
)
def test_committed_records_are_present_once_and_in_order(
    version: int,
    transactions: list[tuple[list[int], bool]],
    fates: list[str],
    answers: list[tuple[ApiKey, ErrorCode | object]],
) -> None:
    cluster = FakeCluster(2, {"t": dict.fromkeys(range(PARTITIONS), 1)})
    cluster.features = {"transaction.version": version}
    broker = Transactions(cluster)
    settings_ = ProducerSettings(transactional_id=TRANSACTIONAL_ID, batch_bytes=100)
    producer = ProducerCore(core_of(cluster), settings_)
    run_blocking(producer.prepare("t"))
    run_blocking(producer.init_transactions())
    Fates(broker, fates)
    for key, answer in answers:
        broker.fates.setdefault(key, []).append(answer)
    expected: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    offset = None
    first = 0
    for sends, commit in transactions:
        if run_transaction(producer, sends, first, commit=commit):
            offset = first + len(sends)
            for number, partition in enumerate(sends, first):
                expected[partition].append(b"%d" % number)
        first += len(sends)
    for partition in range(PARTITIONS):
        assert broker.values.get(("t", partition), []) == expected[partition]
    assert broker.committed.get(("g", "t", 0)) == offset
