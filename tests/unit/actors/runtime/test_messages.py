"""Arguments and answers of calls carry the sender's version."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
from types import ModuleType

import pytest

from raylog.actors.build import BUILD
from raylog.actors.common_messages import TopicId
from raylog.actors.config import ResourceType
from raylog.actors.controller.messages import AlterOp, IsrOutcome
from raylog.actors.roles import LABELS
from raylog.actors.runtime import ray
from raylog.actors.runtime.base import PeerLost, PeerTimeout
from raylog.actors.runtime.packing import (
    MESSAGES_VERSION,
    outcome_of,
    pack,
    unpack,
    value_of,
)
from raylog.wire.errors import InvalidRequest, NotController, UnknownServerError, UnsupportedVersion

ONE = IsrOutcome(TopicId(b"t" * 16), 1)


def test_packed_message_round_trips() -> None:
    assert unpack(pack((ONE, [1, "a", None]))) == (ONE, [1, "a", None])


def test_classes_that_moved_are_packed_as_of_where_other_builds_know_them() -> None:
    """And found by a process that has imported nothing of them."""
    packed = pack([ONE, AlterOp.APPEND])
    assert b"raylog.actors.controller.api" in packed
    assert b"raylog.actors.plain" in packed
    assert b"controller.messages" not in packed
    script = (
        "import sys; from raylog.actors.runtime.packing import unpack; "
        "print(unpack(sys.stdin.buffer.read()))"
    )
    process = subprocess.run(
        [sys.executable, "-c", script], input=packed, capture_output=True, check=True
    )
    assert process.stdout.decode().strip() == str([ONE, AlterOp.APPEND])


def test_another_version_is_refused_with_both() -> None:
    packed = bytes([MESSAGES_VERSION + 1]) + pack(ONE)[1:]
    with pytest.raises(UnsupportedVersion) as refused:
        unpack(packed)
    assert str(refused.value) == (
        f"messages of version {MESSAGES_VERSION + 1} from build '{BUILD}': "
        f"this is build {BUILD}, which knows version {MESSAGES_VERSION}"
    )


@pytest.mark.parametrize("packed", [b"", b"\x01", b"\x01\xff", b"\x01\x03abc", pack(ONE)[:-3]])
def test_truncated_message_is_refused(packed: bytes) -> None:
    with pytest.raises(UnsupportedVersion):
        unpack(packed)


def test_a_class_that_this_build_lacks_is_refused() -> None:
    newer = ModuleType("raylog_of_a_newer_build")
    newer.Newer = type("Newer", (), {"__module__": newer.__name__})  # type: ignore[attr-defined]  # made here
    sys.modules[newer.__name__] = newer
    packed = pack([newer.Newer()])
    del sys.modules[newer.__name__]
    with pytest.raises(UnsupportedVersion, match=f"a message of build '{BUILD}' cannot be read"):
        unpack(packed)


def test_absurd_values_are_refused_as_such() -> None:
    packed = pack(ONE._replace(partition="x" * 1_000))  # type: ignore[arg-type]  # absurd
    with pytest.raises(InvalidRequest, match="partition of IsrOutcome: expected int, found str"):
        unpack(packed)


def test_outcomes_cross_as_plain_data() -> None:
    async def fails(failure: Exception) -> None:
        raise failure

    for failure in (NotController("of 2"), PeerLost("gone"), PeerTimeout("late")):
        crossed = pickle.loads(pickle.dumps(asyncio.run(outcome_of(fails(failure)))))
        with pytest.raises(type(failure), match=str(failure)):
            value_of((*crossed, "of a newer build"))
    with pytest.raises(UnknownServerError, match="error code 9999 of a newer build"):
        value_of((1, (9_999, "of a newer build")))


@pytest.mark.parametrize("label", LABELS.values())
def test_rays_copy_of_an_actors_class_is_found_by_other_builds(label: str) -> None:
    """Ray pickles a subclass by value and its base, this class, by module and name."""
    kind = getattr(ray, label)
    assert pickle.loads(b"c" + f"{ray.__name__}\n{label}\n.".encode()) is kind
    assert pickle.loads(pickle.dumps(kind)) is kind


def test_a_kind_of_resource_is_pickled_where_other_builds_have_it() -> None:
    packed = pickle.dumps(ResourceType.TOPIC, protocol=0)
    assert b"raylog.actors.config\n" in packed
    assert pickle.loads(packed) is ResourceType.TOPIC
