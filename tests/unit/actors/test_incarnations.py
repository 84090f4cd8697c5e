"""Which of two openings of a log came first."""

import pytest

from raylog.actors.incarnations import is_earlier, name_of


@pytest.mark.parametrize(
    ("one", "other", "earlier"),
    [
        (name_of("p", "b", 2), name_of("q", "b", 10), True),
        (name_of("p", "b", 10), name_of("p", "b", 2), False),
        (name_of("p", "b", 2), name_of("p", "b", 2), False),
        (name_of("p", "b", 2), name_of("p", "c", 10), False),
        ("a", "b", False),
        ("", name_of("p", "b", 2), False),
    ],
)
def test_openings_of_one_broker_process_are_in_order(one: str, other: str, earlier: bool) -> None:
    assert is_earlier(one, other) is earlier
