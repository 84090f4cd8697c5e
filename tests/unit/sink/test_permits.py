"""One writer per partition: task attempts, stage attempts, and requests to the driver."""

import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest

from raylog.sink.permits import (
    PermitClient,
    PermitRefused,
    Permits,
    PermitServer,
    refuse_later_attempt,
)

STAGE, OTHER_STAGE = 5, 6
ATTEMPTS = {STAGE: 0, OTHER_STAGE: 1}


@pytest.fixture
def permit_client() -> Iterator[PermitClient]:
    with PermitServer(Permits(ATTEMPTS.get), "127.0.0.1") as opened:
        yield opened


def test_the_first_attempt_of_a_task_goes_on() -> None:
    refuse_later_attempt(0)


@pytest.mark.parametrize("attempt", [1, 3])
def test_a_repeated_or_speculative_attempt_is_refused(attempt: int) -> None:
    with pytest.raises(PermitRefused, match=f"attempt {attempt}"):
        refuse_later_attempt(attempt)


def test_each_partition_has_one_writer() -> None:
    permits = Permits(ATTEMPTS.get)
    assert permits.refusal(0, STAGE, 100) is None
    assert permits.refusal(1, STAGE, 101) is None
    assert permits.refusal(0, STAGE, 102) == "partition 0 is written by task attempt 100"


def test_a_permit_whose_answer_got_lost_is_given_again() -> None:
    permits = Permits(ATTEMPTS.get)
    assert permits.refusal(0, STAGE, 100) is None
    assert permits.refusal(0, STAGE, 100) is None


@pytest.mark.parametrize("stage_id", [OTHER_STAGE, 99])
def test_a_repeated_stage_and_one_that_nobody_knows_are_refused(stage_id: int) -> None:
    refusal = Permits(ATTEMPTS.get).refusal(0, stage_id, 100)
    assert refusal is not None
    assert "expected 0" in refusal


def test_tasks_ask_the_driver(permit_client: PermitClient) -> None:
    permit_client.ask(0, STAGE, 100)
    with pytest.raises(PermitRefused, match="written by task attempt 100"):
        permit_client.ask(0, STAGE, 101)


def test_a_task_of_another_run_gets_no_word(permit_client: PermitClient) -> None:
    with pytest.raises(PermitRefused, match="no word"):
        replace(permit_client, token="0" * 32).ask(0, STAGE, 100)
    permit_client.ask(0, STAGE, 101)


def test_a_task_whose_driver_is_gone_does_not_write() -> None:
    with PermitServer(Permits(ATTEMPTS.get), "127.0.0.1") as permit_client:
        pass
    with pytest.raises(PermitRefused, match="no word"):
        permit_client.ask(0, STAGE, 100)


@pytest.mark.parametrize("line", [b"\n", b"GET / HTTP/1.1\r\n", b"[]\n", b'{"token": 1}\n'])
def test_strangers_get_no_answer(permit_client: PermitClient, line: bytes) -> None:
    with socket.create_connection((permit_client.host, permit_client.port), 10) as stranger:
        stranger.sendall(line)
        assert stranger.recv(1) == b""
    permit_client.ask(0, STAGE, 100)
