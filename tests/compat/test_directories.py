"""Data directories of earlier commits (`make.py`) open, and are what they were to clients."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from confluent_kafka import Producer

from raylog.testing import EmbeddedBroker
from tests.compat.contents import read_contents

DATA = Path(__file__).parent / "data"
ARCHIVES = sorted([*DATA.glob("*/clean.tar.xz"), *DATA.glob("*/crashed.tar.xz")])
KEPT = {"log.retention.ms": "-1", "offsets.retention.minutes": "2147483647"}
"""The archives are older than what is kept by default."""


@pytest.fixture(params=ARCHIVES, ids=lambda path: f"{path.parent.name}-{path.name.split('.')[0]}")
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, object]]:
    """An archive's directories, and what clients read from them when they were made."""
    path = request.param
    with tarfile.open(path) as packed:
        packed.extractall(tmp_path, filter="data")
    return tmp_path, json.loads((path.parent / "contents.json").read_text())


def test_what_an_earlier_commit_wrote_is_served(archive: tuple[Path, dict[str, object]]) -> None:
    data, expected = archive
    with EmbeddedBroker(data=data, settings=KEPT) as cluster:
        assert read_contents(cluster.bootstrap) == expected
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        for topic in ("plain", "compacted", "settings"):
            producer.produce(topic, "written later", key="later")
        assert producer.flush(60) == 0


def test_it_is_served_again_after_this_build_has_written_to_it(
    archive: tuple[Path, dict[str, object]],
) -> None:
    data, expected = archive
    for _ in range(2):
        with EmbeddedBroker(data=data, settings=KEPT) as cluster:
            assert read_contents(cluster.bootstrap) == expected
