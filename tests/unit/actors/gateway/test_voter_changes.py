"""AddRaftVoter and RemoveRaftVoter: forwarded to the controller, refused with Kafka's texts."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.actors.controller.messages import AddVoter, RemoveVoter
from raylog.wire.errors import DuplicateVoter, ErrorCode, VoterNotFound
from raylog.wire.messages.add_raft_voter import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    Listener,
)
from raylog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from raylog.wire.uuids import ZERO_UUID, to_base64
from tests.worlds.decorators import in_world
from tests.worlds.gateway.actor import CLUSTER, World, run

DIRECTORY = b"directory of two"


def adding(**fields: Any) -> AddRaftVoterRequest:
    values: dict[str, Any] = {
        "cluster_id": None,
        "timeout_ms": 4_000,
        "voter_id": 2,
        "voter_directory_id": DIRECTORY,
        "listeners": [Listener(name="CONTROLLER", host="h", port=1)],
        **fields,
    }
    return AddRaftVoterRequest(**values)


def removing(cluster_id: str | None) -> RemoveRaftVoterRequest:
    return RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=2, voter_directory_id=DIRECTORY)


@pytest.mark.parametrize("version", [0, 1])
@in_world(run)
async def test_a_voter_is_added_by_the_controller(world: World, *, version: int) -> None:
    world.controller.script["add_voter"] = lambda _asked: None
    asked = adding(cluster_id=CLUSTER, **({"ack_when_committed": False} if version else {}))
    answer = await world.client().ask(asked, version)
    assert answer == AddRaftVoterResponse(error_message=None)
    expected = AddVoter(2, to_base64(DIRECTORY), 3_000, ack_when_committed=not version)
    assert world.controller.asked == [("add_voter", expected)]


@pytest.mark.parametrize(
    ("request_", "error", "message"),
    [
        (
            adding(cluster_id="other"),
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f'The given id "other" doesn\'t match the cluster id "{CLUSTER}"',
        ),
        (
            adding(voter_id=-1),
            ErrorCode.INVALID_REQUEST,
            "Add voter request didn't include a valid voter",
        ),
        (
            adding(voter_directory_id=ZERO_UUID),
            ErrorCode.INVALID_REQUEST,
            "Add voter request didn't include a valid voter",
        ),
        (
            removing("other"),
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f'The given id "other" doesn\'t match the cluster id "{CLUSTER}"',
        ),
    ],
    ids=["cluster", "broker", "directory", "cluster of a removal"],
)
@in_world(run)
async def test_invalid_voter_request_is_not_forwarded_to_the_controller(
    world: World, *, request_: Any, error: ErrorCode, message: str
) -> None:
    answer = await world.client().ask(request_, 0)
    assert (answer.error_code, answer.error_message) == (error, message)
    assert not world.controller.asked


@in_world(run)
async def test_a_voter_is_removed_by_the_controller(world: World) -> None:
    world.controller.script["remove_voter"] = lambda _asked: None
    answer = await world.client().ask(removing(CLUSTER), 0)
    assert answer == RemoveRaftVoterResponse(error_message=None)
    expected = RemoveVoter(2, to_base64(DIRECTORY))
    assert world.controller.asked == [("remove_voter", expected)]


def test_refusal_of_the_controller_is_answered() -> None:
    def duplicate(_asked: AddVoter) -> None:
        raise DuplicateVoter("twice")

    def unknown(_asked: RemoveVoter) -> None:
        raise VoterNotFound("nobody")

    async def scenario(world: World) -> None:
        world.controller.script["add_voter"] = duplicate
        world.controller.script["remove_voter"] = unknown
        added = await world.client().ask(adding(), 1)
        removed = await world.client().ask(removing(None), 0)
        assert (added.error_code, added.error_message) == (ErrorCode.DUPLICATE_VOTER, "twice")
        assert (removed.error_code, removed.error_message) == (ErrorCode.VOTER_NOT_FOUND, "nobody")

    run(scenario)
