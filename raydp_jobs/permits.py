"""Who may write a partition: one attempt of one task, in a stage's first attempt.

A (producer id, epoch) has one writer a partition: a second one with its rows in another order
would be merged into the first by sequence numbers, silently. A repeated stage may besides read
other map outputs than those of its tasks that are done. PySpark's tasks know the attempt of their
task, not that of their stage; the driver's scheduler knows both. So a task asks the driver before
its first Produce.

The way is a TCP connection with one line of JSON each way; it opens with a token that travels with
the tasks' code. Nothing received is ever unpickled.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import socketserver
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

_LINE_BYTES_MAX = 4_096
_ANSWER_S = 60.0
_LOOK_S = 0.005
"""How long a run's end may wait for its office to close."""


class PermitRefused(Exception):
    """This attempt must not write; the batch will be run again under another identity."""


def refuse_later_attempt(attempt_number: int) -> None:
    """Raise PermitRefused for a repeated or speculative attempt of a task."""
    if attempt_number > 0:
        raise PermitRefused(
            f"attempt {attempt_number}: an earlier one may have written under this identity"
        )


@dataclass(slots=True)
class Permits:
    """One run of a batch: each output partition to one task attempt, once."""

    stage_attempt: Callable[[int], int | None]
    """Newest attempt of a stage by its id, from 0; None: the scheduler does not know it."""
    _writers: dict[int, int] = field(default_factory=dict)

    def refusal(self, index: int, stage_id: int, task_attempt_id: int) -> str | None:
        """Why the task may not write output partition `index`; None: it may, and nobody else."""
        attempt = self.stage_attempt(stage_id)
        if attempt != 0:
            return f"stage {stage_id} is at attempt {attempt}, expected 0"
        writer = self._writers.setdefault(index, task_attempt_id)
        if writer != task_attempt_id:
            return f"partition {index} is written by task attempt {writer}"
        return None


@dataclass(frozen=True, slots=True)
class PermitDesk:
    """Where a run's tasks ask; travels to the executors."""

    host: str
    port: int
    token: str

    def ask(self, index: int, stage_id: int, task_attempt_id: int) -> None:
        """Ask before the first Produce; raises PermitRefused, also if the driver is gone."""
        asked = {"token": self.token, "ask": [index, stage_id, task_attempt_id]}
        try:
            with socket.create_connection((self.host, self.port), _ANSWER_S) as connection:
                connection.sendall(json.dumps(asked).encode() + b"\n")
                with connection.makefile("rb") as lines:
                    answer = json.loads(lines.readline(_LINE_BYTES_MAX))
        except (OSError, ValueError) as error:
            raise PermitRefused(f"no word from the driver at {self.host}: {error}") from error
        if answer["refusal"] is not None:
            raise PermitRefused(answer["refusal"])


class PermitOffice:
    """The driver's side of one run: `with PermitOffice(permits, host) as desk`."""

    def __init__(self, permits: Permits, host: str, bind: str | None = None) -> None:
        """`host` is the driver's, as executors reach it; `bind` the address to listen on."""
        self._token = secrets.token_hex(16)
        self._host = host
        self._server = _Server((bind or host, 0), permits, self._token)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_LOOK_S,), name="sink permits", daemon=True
        )

    def __enter__(self) -> PermitDesk:
        self._thread.start()
        return PermitDesk(self._host, self._server.server_address[1], self._token)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(socketserver.ThreadingTCPServer):
    """Knows the permits; one request at a time."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], permits: Permits, token: str) -> None:
        super().__init__(address, _Handler)
        self._permits = permits
        self._token = token
        self._lock = threading.Lock()

    def answer(self, line: bytes) -> bytes:
        """The answer to one request; ValueError, KeyError or TypeError if it is none of ours."""
        asked = json.loads(line)
        if not hmac.compare_digest(str(asked["token"]), self._token):
            raise ValueError("a token of another run")
        index, stage_id, task_attempt_id = asked["ask"]
        with self._lock:
            refusal = self._permits.refusal(index, stage_id, task_attempt_id)
        return json.dumps({"refusal": refusal}).encode() + b"\n"


class _Handler(socketserver.StreamRequestHandler):
    """One request."""

    timeout = _ANSWER_S
    server: _Server

    def handle(self) -> None:
        """Answer, or close on strangers."""
        try:
            answer = self.server.answer(self.rfile.readline(_LINE_BYTES_MAX))
        except (OSError, ValueError, KeyError, TypeError):
            return  # a port scan, or a task of a driver that had this port before
        self.wfile.write(answer)
