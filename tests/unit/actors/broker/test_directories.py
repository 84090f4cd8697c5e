"""Names of partition directories."""

import pytest

from raylog.actors.broker.rules.directories import (
    directory_name,
    is_partition,
    is_stray,
    stray_name,
)
from raylog.actors.common_messages import TopicId


def test_the_topic_id_tells_directories_apart_where_the_name_is_cut() -> None:
    names = {directory_name("n" * 249, (TopicId(bytes(15) + bytes([n])), 7)) for n in range(2)}
    assert len(names) == 2
    assert all(len(name) < 255 for name in names)
    assert directory_name("t", (TopicId(bytes(range(16))), 7)) == "t-7.AAECAwQFBgcICQoLDA0ODw"


def test_a_stray_is_distinguished_from_a_partition_by_its_name() -> None:
    for number in range(256):  # whatever the topic id ends with
        name = directory_name("a-stray", (TopicId(bytes([number]) * 16), 7))
        assert is_partition(name)
        assert not is_stray(name)
        stray = stray_name(name, 1_700_000_000_000)
        assert is_stray(stray)
        assert not is_partition(stray)
    longest = stray_name(directory_name("n" * 249, (TopicId(bytes(16)), 99_999)), 1_700_000_000_000)
    assert len(longest) <= 255


@pytest.mark.parametrize(
    "name", ["lost+found", "t-0", ".", "t-0.short", "t.AAECAwQFBgcICQoLDA0ODw"]
)
def test_other_names_are_nobodys(name: str) -> None:
    assert not is_partition(name)
    assert not is_stray(name)
