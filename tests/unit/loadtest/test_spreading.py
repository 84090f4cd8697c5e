"""How users are spread over processes. It runs in a process of its own, as Locust patches it."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import gevent.monkey

gevent.monkey.patch_all()

from locust.runners import WorkerNode

from raylog.loadtest.dispatching import EvenDispatcher
from raylog.loadtest.local import Local
from raylog.loadtest.scenario import checked
from raylog.loadtest.users import user_classes

scenario = checked(
    {
        "name": "one", "question": "?", "duration_s": 10, "topics": {"orders": {}},
        "users": [
            {"kind": "producer", "topic": "orders", "rate": 1, "count": 7},
            {"kind": "consumer", "topic": "orders", "count": 2},
        ],
    },
    "a test",
)
nodes = [WorkerNode("c"), WorkerNode("a"), WorkerNode("b")]
dispatcher = EvenDispatcher(nodes, user_classes(Local(scenario, "run", "")))
dispatcher.new_dispatch(9, 1.0)
(spread,) = dispatcher
assert spread == {
    "a": {"ProducerUser0": 3, "ConsumerUser1": 1},
    "b": {"ProducerUser0": 2, "ConsumerUser1": 1},
    "c": {"ProducerUser0": 2, "ConsumerUser1": 0},
}, spread
seats = [
    seat
    for worker, count in ((0, 3), (1, 2), (2, 2))
    for local in [Local(scenario, "run", "", worker=worker, workers=3)]
    for seat in [local.take_seat(0) for _ in range(count)]
]
assert sorted(seats) == list(range(7)), seats
dispatcher.remove_worker(nodes[0])
dispatcher.new_dispatch(9, 1.0)
(spread,) = dispatcher
assert set(spread) == {"a", "b"}, spread
print("spread")
"""


def test_each_process_has_its_share_of_each_entry() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout == "spread\n", done.stderr
