"""Names of the partitions' directories."""

from raylog.actors.broker.directories import directory_name
from raylog.actors.ports import TopicId


def test_the_topic_id_tells_directories_apart_where_the_name_is_cut() -> None:
    names = {directory_name("n" * 249, (TopicId(bytes(15) + bytes([n])), 7)) for n in range(2)}
    assert len(names) == 2
    assert all(len(name) < 255 for name in names)
    assert directory_name("t", (TopicId(bytes(range(16))), 7)) == "t-7.AAECAwQFBgcICQoLDA0ODw"
