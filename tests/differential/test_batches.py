"""Apache Kafka and Raylog treat the same batches alike: answers, stored data, lookups.

Apache Kafka's behaviour is recorded (`record_batches`), so this needs no Java.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from raylog.testing import EmbeddedBroker
from tests.differential.batch_cases import cases
from tests.differential.batch_stage import RECORDED, play
from tests.differential.golden import read
from tests.differential.normalized import differences
from tests.differential.playing import Transcripts

KAFKA = read(RECORDED)


class Deviation(NamedTuple):
    """Cases in which Raylog differs on purpose, and how: patterns of whole names and lines."""

    cases: str
    lines: str


STRICTER = Deviation("", r"\.answered\[0\]\..*|\.stored: .*|\.found\[0\]\..*")
"""Apache Kafka takes the batch, Raylog does not."""
JUSTIFIED = [
    # What no reader can read: lengths of compressed records that do not lead to the next one.
    STRICTER._replace(cases=r"(GZIP|SNAPPY|LZ4|ZSTD) a (negative length|length .*)"),
    # Deltas out of line give offsets twice, or none, or those of other batches. Compressed, Apache
    # Kafka refuses them as well, unless they are compressed anew; then it numbers the records.
    STRICTER._replace(cases=r"NONE offset delta.*|\w+ stored as .*, an offset delta twice"),
    # A topic's own clock is not for producers. Apache Kafka clears the bit, and takes the largest
    # time that is claimed for that of each record.
    STRICTER._replace(cases=r"\w+ claims log append time( where it is so)?"),
    # Apache Kafka runs into an exception of its own.
    Deviation(
        r".* frame .*|snappy raw and a byte|.* offset delta.*",
        r".*\.error: 'UNKNOWN_SERVER_ERROR', 'INVALID_RECORD'",
    ),
    # It names the record without a key; the batch could not be read.
    Deviation(r"\w+ compacted, no key, an offset delta twice", r".*\.records: .*"),
    # Apache Kafka tells the largest time of the stored batch, though it is not that of an append.
    Deviation(r"\w+ of one producer, claiming nothing", r".*\[1\]\.append time: .*"),
]

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def played() -> Transcripts:
    """What Raylog does."""
    with EmbeddedBroker() as broker:
        return play(broker.bootstrap, cases())


@pytest.mark.parametrize("name", list(KAFKA))
def test_the_same_batch(played: Transcripts, name: str) -> None:
    (theirs,), (ours,) = KAFKA[name], played[name]
    lines = [
        line
        for line in differences(theirs, ours)
        if not any(
            re.fullmatch(each.cases, name) and re.fullmatch(each.lines, line) for each in JUSTIFIED
        )
    ]
    assert lines == []


def test_every_case_is_recorded() -> None:
    assert KAFKA.keys() == {case.name for case in cases()}
    assert len(KAFKA) == 429
