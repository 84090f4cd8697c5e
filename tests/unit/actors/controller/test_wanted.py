"""Where brokers are to run, and which data directories the controller accepts as theirs."""

import pytest

from raylog.actors.controller.messages import WantedBrokers
from raylog.actors.metadata.image import MetadataImage
from raylog.actors.metadata.records import (
    BrokerUnwanted,
    BrokerWanted,
    decode_record,
    encode_record,
)
from raylog.wire.errors import InvalidRegistration, InvalidRequest
from tests.worlds.controller.machine import Controlled


def wanted(broker_id: int, directory_id: str = "", *replaced: str) -> BrokerWanted:
    labels = {"raylog-broker": str(broker_id)}
    settings = {"listeners": "PLAINTEXT://10.0.0.1:9092", "broker.rack": "a"}
    return BrokerWanted(
        broker_id,
        labels,
        f"/srv/broker-{broker_id}",
        settings,
        0.5,
        1 << 20,
        directory_id,
        replaced,
    )


def want(cluster: Controlled, *changes: BrokerWanted | BrokerUnwanted) -> None:
    cluster.carry(cluster.machine.brokers.wanted.want(changes))


def test_a_registered_broker_keeps_its_directory_when_it_is_placed() -> None:
    cluster = Controlled(1)
    want(cluster, wanted(0))
    assert cluster.image.wanted == {0: wanted(0, "d0")}
    offset = cluster.image.offset
    want(cluster, wanted(0), wanted(0, "d0"))
    assert cluster.image.offset == offset, "that is so already"


def test_a_new_brokers_directory_is_known_once_it_has_registered() -> None:
    cluster = Controlled(1)
    want(cluster, wanted(1))
    assert cluster.image.wanted[1].directory_id == ""
    epoch = cluster.register(1)
    assert cluster.image.wanted[1] == wanted(1, "d1")
    assert cluster.image.brokers[1].broker_epoch == epoch
    assert cluster.register(1) == epoch, "the same again"


def test_an_unmounted_disk_is_no_new_broker() -> None:
    cluster = Controlled(2)
    want(cluster, wanted(0), wanted(1))
    with pytest.raises(InvalidRegistration, match=r"expected is d1\. Is its disk mounted at /srv"):
        cluster.register(1, directory_id="blank", incarnation="later")
    cluster.register(1, incarnation="later")


def test_a_replaced_directory_is_never_taken_again() -> None:
    cluster = Controlled(2)
    want(cluster, wanted(1))
    want(cluster, wanted(1, "", "d1"))
    assert cluster.image.wanted[1].directory_id == "", "the old one is not taken for the new one"
    with pytest.raises(InvalidRegistration, match="was replaced"):
        cluster.register(1, incarnation="later")
    cluster.carry_all(lambda: cluster.machine.brokers.unregister(1))
    cluster.register(1, directory_id="new", incarnation="later")
    assert cluster.image.wanted[1] == wanted(1, "new", "d1")
    with pytest.raises(InvalidRegistration, match=r"was replaced.*Expected is new"):
        cluster.register(1, incarnation="much later")


def test_brokers_that_nobody_has_placed_register_as_they_come() -> None:
    cluster = Controlled(1)
    want(cluster, BrokerUnwanted(0))
    assert cluster.machine.brokers.wanted.answer() == WantedBrokers(
        cluster.image.offset, cluster.image.voters, ()
    )
    cluster.register(5, directory_id="any")


def test_an_unwanted_broker_is_forgotten() -> None:
    cluster = Controlled(2)
    want(cluster, wanted(0), wanted(1))
    want(cluster, BrokerUnwanted(1))
    assert cluster.machine.brokers.wanted.answer().brokers == (wanted(0, "d0"),)


def test_a_snapshot_has_it() -> None:
    cluster = Controlled(2)
    want(cluster, wanted(0), wanted(1, "", "gone"))
    whole = MetadataImage()
    whole.apply_all(decode_record(encode_record(one)) for one in cluster.image.snapshot())
    assert whole.wanted == cluster.image.wanted


def replace(cluster: Controlled, broker_id: int, directory_id: str) -> None:
    cluster.carry(cluster.machine.brokers.wanted.replace(broker_id, directory_id))


def fence(cluster: Controlled, broker_id: int) -> None:
    """The broker's session ends; the others are heard."""
    for _ in range(5):
        cluster.now_ms += 2_000
        for other in cluster.epochs:
            if other != broker_id:
                cluster.beat(other)
        cluster.carry_all(lambda: cluster.machine.brokers.expire(cluster.now_ms))
    assert cluster.image.brokers[broker_id].fenced


def test_a_lost_brokers_directory_is_given_up() -> None:
    cluster = Controlled(2)
    cluster.topic("t", (0, 1), (1, 0))
    want(cluster, wanted(0), wanted(1))
    fence(cluster, 1)
    replace(cluster, 1, "d1")
    assert cluster.image.wanted[1] == wanted(1, "", "d1")
    offset = cluster.image.offset
    replace(cluster, 1, "d1")
    assert cluster.image.offset == offset, "that is so already"
    cluster.register(1, directory_id="new", incarnation="later")
    replace(cluster, 1, "d1")
    assert cluster.image.wanted[1] == wanted(1, "new", "d1"), "a late repetition"


def test_a_live_broker_is_not_replaced() -> None:
    cluster = Controlled(2)
    want(cluster, wanted(0), wanted(1))
    with pytest.raises(InvalidRequest, match="broker 1 is live"):
        replace(cluster, 1, "d1")


def test_the_last_eligible_copy_is_not_given_up_and_is_named() -> None:
    cluster = Controlled(2)
    for number in range(5):
        cluster.topic(f"only-{number}", (1,))
    cluster.topic("both", (0, 1))
    want(cluster, wanted(0), wanted(1))
    fence(cluster, 1)
    with pytest.raises(InvalidRequest, match="all of only-0:0, only-1:0, only-2:0 and 2 more"):
        replace(cluster, 1, "d1")
    assert cluster.image.wanted[1] == wanted(1, "d1")


@pytest.mark.parametrize(
    ("broker_id", "directory_id", "why"),
    [(7, "d7", "is not wanted anywhere"), (1, "other", "has the directory d1, not other")],
)
def test_replacing_a_directory_requires_a_matching_lost_one(
    broker_id: int, directory_id: str, why: str
) -> None:
    cluster = Controlled(2)
    want(cluster, wanted(0), wanted(1))
    fence(cluster, 1)
    with pytest.raises(InvalidRequest, match=why):
        replace(cluster, broker_id, directory_id)
