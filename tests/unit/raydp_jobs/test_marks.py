"""Query and batch id in the metadata of committed offsets."""

import pytest

from raylog.raydp_jobs.marks import METADATA_BYTES_MAX, Mark, MarkTooLong, read_mark


def test_a_mark_survives_the_trip() -> None:
    assert read_mark(Mark("abfrage-ü", 12).encode()) == Mark("abfrage-ü", 12)


@pytest.mark.parametrize("text", [None, "", "x", "{}", '{"query": 1, "batch": 2}', "[1]"])
def test_metadata_of_others_is_no_mark(text: str | None) -> None:
    assert read_mark(text) is None


def test_a_mark_fits_the_brokers_limit() -> None:
    """Kafka refuses more than 4,096 bytes with OFFSET_METADATA_TOO_LARGE."""
    overhead = len(Mark("", 1).encode())
    longest = Mark("ü" * ((METADATA_BYTES_MAX - overhead) // 2), 1)
    assert METADATA_BYTES_MAX - 1 <= len(longest.encode().encode()) <= METADATA_BYTES_MAX
    with pytest.raises(MarkTooLong, match="at most 4096"):
        Mark(longest.query_id + "ü", 1).encode()


def test_a_mark_covers_its_query_up_to_its_batch() -> None:
    newest = Mark("q", 3)
    assert newest.covers(Mark("q", 3))
    assert newest.covers(Mark("q", 2))
    assert not newest.covers(Mark("q", 4))
    assert not newest.covers(Mark("p", 3))
