"""Write permits: a partition is written by one attempt of one task, in a stage's first attempt.

Each partition has one writer per (producer id, epoch): sequence numbers would silently merge a
second writer, whose rows may be in another order, into the first. In addition, a repeated stage may
read other map outputs than its finished tasks did. PySpark's tasks know the attempt of their task
but not of their stage; the driver's scheduler knows both. So a task asks the driver before its
first Produce.

Request and answer are one line of JSON each, over TCP. The request has a token that was sent with
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
"""How long closing the office may take at the end of a run."""


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
    """Permits of one run of a batch: each output partition is written by one task attempt."""

    stage_attempt: Callable[[int], int | None]
    """Returns a stage's newest attempt (from 0) by its id; None: unknown to the scheduler."""
    _writers: dict[int, int] = field(default_factory=dict)

    def refusal(self, index: int, stage_id: int, task_attempt_id: int) -> str | None:
        """Grant a task output partition `index` (None), or return why it may not write there."""
        attempt = self.stage_attempt(stage_id)
        if attempt != 0:
            return f"stage {stage_id} is at attempt {attempt}, expected 0"
        writer = self._writers.setdefault(index, task_attempt_id)
        if writer != task_attempt_id:
            return f"partition {index} is written by task attempt {writer}"
        return None


@dataclass(frozen=True, slots=True)
class PermitClient:
    """Where a run's tasks ask for permits; sent to the executors."""

    host: str
    port: int
    token: str

    def ask(self, index: int, stage_id: int, task_attempt_id: int) -> None:
        """Ask before the first Produce; raise PermitRefused, also if the driver is gone."""
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


class PermitServer:
    """The driver's side of one run: `with PermitServer(permits, host) as permit_client`."""

    def __init__(self, permits: Permits, host: str, bind: str | None = None) -> None:
        """`host` is the driver's address for executors; `bind` is the address to listen on."""
        self._token = secrets.token_hex(16)
        self._host = host
        self._server = _Server((bind or host, 0), permits, self._token)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_LOOK_S,), name="sink permits", daemon=True
        )

    def __enter__(self) -> PermitClient:
        self._thread.start()
        return PermitClient(self._host, self._server.server_address[1], self._token)

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
    """Answers requests for permits, one at a time."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], permits: Permits, token: str) -> None:
        super().__init__(address, _Handler)
        self._permits = permits
        self._token = token
        self._lock = threading.Lock()

    def answer(self, line: bytes) -> bytes:
        """Answer one request; raise ValueError, KeyError or TypeError if it is not valid."""
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
        """Answer, or close the connection if the request is not valid."""
        try:
            answer = self.server.answer(self.rfile.readline(_LINE_BYTES_MAX))
        except (OSError, ValueError, KeyError, TypeError):
            return  # a port scan, or a task of an earlier driver on this port
        self.wfile.write(answer)
