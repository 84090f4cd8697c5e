"""Data directories of earlier commits (`make.py`) open, and are what they were to clients."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from confluent_kafka import Producer

from raylog.actors.broker.metadata_log import MetadataLog
from raylog.actors.metadata.image import BrokerRegistration, MetadataImage
from raylog.actors.metadata.records import decode_record
from raylog.storage.dry_run import DryRunDisk
from raylog.testing import EmbeddedBroker
from tests.compat.contents import read_contents

DATA = Path(__file__).parent / "data"
ARCHIVES = sorted([*DATA.glob("*/clean.tar.xz"), *DATA.glob("*/crashed.tar.xz")])
KEPT = {"log.retention.ms": "-1", "offsets.retention.minutes": "2147483647"}
"""The archives are older than what is kept by default."""


WITH_ONE_LISTENER = [path for path in ARCHIVES if path.parent.name == "0765b31"]
"""Of builds that knew one endpoint of a broker, and one port of a process."""


@pytest.fixture(params=ARCHIVES, ids=lambda path: f"{path.parent.name}-{path.name.split('.')[0]}")
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, object]]:
    """An archive's directories, and what clients read from them when they were made."""
    path = request.param
    _unpack(path, tmp_path)
    return tmp_path, json.loads((path.parent / "contents.json").read_text())


def _unpack(archive: Path, directory: Path) -> None:
    shutil.unpack_archive(archive, directory)


@pytest.mark.parametrize("path", WITH_ONE_LISTENER, ids=lambda path: path.name.split(".")[0])
def test_brokers_of_an_earlier_commit_had_the_listener_plaintext(
    path: Path, tmp_path: Path
) -> None:
    _unpack(path, tmp_path)
    found: dict[int, BrokerRegistration] = {}
    for directory in sorted(tmp_path.glob("broker-*/metadata")):
        log = MetadataLog(directory, DryRunDisk())
        image = MetadataImage()
        image.apply_update(
            -1, log.copy.snapshot.offset, map(decode_record, log.copy.snapshot.records)
        )
        for entry in log.copy.entries:
            image.apply_all(map(decode_record, entry.records))
        log.close()
        found |= image.brokers
    assert sorted(found) == [0, 1, 2]
    for broker in found.values():
        (endpoint,) = broker.endpoints
        assert endpoint == broker.endpoint("PLAINTEXT")
        assert endpoint.host == "127.0.0.1"
        assert endpoint.port > 0


def test_data_written_by_an_earlier_commit_is_served(
    archive: tuple[Path, dict[str, object]],
) -> None:
    data, expected = archive
    with EmbeddedBroker(data=data, settings=KEPT) as cluster:
        assert read_contents(cluster.bootstrap) == expected
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        for topic in ("plain", "compacted", "settings"):
            producer.produce(topic, "written later", key="later")
        assert producer.flush(60) == 0


@pytest.mark.long
def test_data_is_served_again_after_this_build_wrote_to_it(
    archive: tuple[Path, dict[str, object]],
) -> None:
    data, expected = archive
    for _ in range(2):
        with EmbeddedBroker(data=data, settings=KEPT) as cluster:
            assert read_contents(cluster.bootstrap) == expected
