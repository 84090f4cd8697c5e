"""Commits of group members. They run in a process of their own, as Locust patches it."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest

SCRIPT = """
import gevent.monkey

gevent.monkey.patch_all()

import json
import sys

from locust.env import Environment

from raylog.client import errors
from raylog.loadtest.local import Local
from raylog.loadtest.scenario import checked
from raylog.loadtest.users import user_classes

scenario = checked(
    {
        "name": "one", "question": "?", "duration_s": 100, "topics": {"t": {}},
        "users": [{"kind": "group", "topic": "t", "group": "g"}],
    },
    "a test",
)
local = Local(scenario, "run", "")
now_us = 0
local.clock.now_us = lambda: now_us
(kind,) = user_classes(local)


class Consumer:
    failure = getattr(errors, sys.argv[1])("its coordinator is away")

    def subscribe(self, *_):
        pass

    def poll(self, *_):
        return []

    def commit(self):
        global now_us
        if self.failure is not None:
            now_us += 20_000_000
            raise self.failure


user = kind(Environment(user_classes=[kind]))
user.on_start()
user.open = lambda settings: Consumer()
user._consumer = user.open({})
user.begin()
user._has_read = True
now_us = 1_000_000
held = [user._guarded(user.step), user._guarded(user.step)]
Consumer.failure = None
held.append(user._guarded(user.step))
print(json.dumps([
    held,
    {
        one.name: [one.errors, sum(each.requests for each in one.intervals)]
        for one in local.recorder.take()
    },
]))
"""


@pytest.mark.skipif(find_spec("locust") is None, reason="locust is not installed")
@pytest.mark.parametrize("failure", ["RequestTimedOut", "NotConnected", "ConnectionLost"])
def test_commits_without_an_answer_have_failed(failure: str) -> None:
    """Of 41 commits, one is due at the first step, 20 at the second, and 20 at the third."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, failure],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    held, operations = json.loads(done.stdout)
    assert held == [True, True, True]
    assert operations == {"commit": [{f"{failure}: its coordinator is away": 21}, 20]}
