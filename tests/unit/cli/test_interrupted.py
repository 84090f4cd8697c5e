"""`raylog consume` and Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from raylog.client import BlockingClient, NewTopic, Producer, TopicPartition
from raylog.testing import EmbeddedBroker


@pytest.mark.parametrize("group", [None, "readers"])
def test_ctrl_c_ends_consume_with_130_and_commits_what_was_printed(group: str | None) -> None:
    with EmbeddedBroker() as broker:
        with BlockingClient(broker.bootstrap) as client:
            client.create_topics([NewTopic("pages", 1)])
        with Producer(broker.bootstrap) as producer:
            producer.send("pages", b"one")
        options = ["--from", "earliest", *(["--group", group] if group else [])]
        process = subprocess.Popen(  # our own command
            [sys.executable, "-m", "raylog.cli", "consume", "pages", *options],
            env={**os.environ, "RAYLOG_BOOTSTRAP": broker.bootstrap},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"one\n"
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()
        assert process.returncode == 130, errors
        assert b"Traceback" not in errors
        if group is not None:
            with BlockingClient(broker.bootstrap) as client:
                key = TopicPartition("pages", 0)
                assert client.group_offsets(group, [key])[key].offset == 1
