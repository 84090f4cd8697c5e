"""A broker on a real socket that requires TLS and SASL, and follows Kafka's rules or lies."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from raylog.wire.api import ApiKey
from raylog.wire.errors import ErrorCode
from raylog.wire.frame import decode_request, decode_request_header, encode_response
from raylog.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from raylog.wire.messages.metadata import MetadataResponse, MetadataResponseBroker
from raylog.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from raylog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

USER, PASSWORD = "ann", "pass,word=1"
SALT = b"salt of this broker"


class ScramServer:
    """The server side of a SCRAM login; it knows the password."""

    def __init__(self, name: str, lie: str) -> None:
        self._name = name
        self._lie = lie
        self._exchange: tuple[str, str] | None = None

    def step(self, token: bytes) -> bytes | None:
        """Return the answer to a token; None refuses the login."""
        text = token.decode()
        if self._exchange is None:
            bare = text.removeprefix("n,,")
            nonce = bare.partition(",r=")[2] + "server"
            iterations = 1 if self._lie == "iterations" else 4096
            first = f"r={nonce},s={base64.b64encode(SALT).decode()},i={iterations}"
            self._exchange = bare, first
            return first.encode()
        without_proof, _, proof = text.partition(",p=")
        exchange = ",".join((*self._exchange, without_proof)).encode()
        salted = hashlib.pbkdf2_hmac(self._name, PASSWORD.encode(), SALT, 4096)
        client_key = hmac.digest(salted, b"Client Key", self._name)
        stored_key = hashlib.new(self._name, client_key).digest()
        signature = hmac.digest(stored_key, exchange, self._name)
        expected = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        if self._lie == "signature":
            return b"v=" + base64.b64encode(b"whatever")
        if base64.b64decode(proof) != expected:
            return None
        server_key = hmac.digest(salted, b"Server Key", self._name)
        return b"v=" + base64.b64encode(hmac.digest(server_key, exchange, self._name))


@dataclass
class SecureBroker:
    """What one listener requires of its clients, and the requests it received."""

    tls: ssl.SSLContext | None = None
    mechanisms: tuple[str, ...] = ()
    lifetime_ms: int = 0
    lie: str = ""
    advertised_host: str = "127.0.0.1"
    hijack: Callable[[socket.socket], None] | None = None
    """Takes over each new connection."""
    seen: list[ApiKey] = field(default_factory=list)
    port: int = 0
    connections: int = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[SecureBroker]:
        """Serve until the block ends."""
        open_sockets: list[socket.socket] = []
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
            threads: list[threading.Thread] = []
            arguments = (listener, open_sockets, threads)
            thread = threading.Thread(target=self._accept, args=arguments)
            thread.start()
            try:
                yield self
            finally:
                listener.shutdown(socket.SHUT_RDWR)
                thread.join()
                for one in open_sockets:
                    with contextlib.suppress(OSError):
                        one.shutdown(socket.SHUT_RDWR)
                for thread in threads:
                    thread.join()
                for one in open_sockets:
                    one.close()

    @property
    def address(self) -> str:
        """The address for `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    def _accept(
        self,
        listener: socket.socket,
        open_sockets: list[socket.socket],
        threads: list[threading.Thread],
    ) -> None:
        with contextlib.suppress(OSError):  # the test closes the listener
            while True:
                sock, _ = listener.accept()
                open_sockets.append(sock)
                self.connections += 1
                thread = threading.Thread(target=self._serve, args=(sock, open_sockets))
                thread.start()
                threads.append(thread)

    def _serve(self, sock: socket.socket, open_sockets: list[socket.socket]) -> None:
        with contextlib.suppress(OSError, EOFError):  # the client closed the connection
            if self.hijack is not None:
                self.hijack(sock)
                return
            if self.tls is not None:
                sock = self.tls.wrap_socket(sock, server_side=True)
                open_sockets.append(sock)
            with sock, sock.makefile("rb") as stream:
                Session(self, sock, stream).serve()


class Session:
    """One connection."""

    def __init__(self, broker: SecureBroker, sock: socket.socket, stream: BinaryIO) -> None:
        self._broker = broker
        self._sock = sock
        self._input = stream
        self._scram: ScramServer | None = None
        self._mechanism = ""
        self._is_in = not broker.mechanisms
        self._ends = float("inf")

    def serve(self) -> None:
        """Answer requests until one is wrong."""
        while True:
            size = int.from_bytes(self._exactly(4), "big")
            if size > 1 << 20:
                break  # not a request: close the connection, as Kafka does
            frame = memoryview(self._exactly(size))
            header, position = decode_request_header(frame)
            assert isinstance(header.api_key, ApiKey)
            request = decode_request(header, frame, position)
            self._broker.seen.append(header.api_key)
            response = self._answer(header.api_key, request)
            if response is None:
                break
            chunks = encode_response(
                header.api_key, header.api_version, header.correlation_id, response
            )
            self._sock.sendall(b"".join(chunks))
        self._sock.shutdown(socket.SHUT_RDWR)

    def _exactly(self, count: int) -> bytes:
        data = self._input.read(count)
        if len(data) < count:
            raise EOFError
        return data

    def _answer(self, key: ApiKey, request: object) -> object | None:
        if key is ApiKey.API_VERSIONS:
            return ApiVersionsResponse(
                api_keys=[
                    ApiVersion(
                        api_key=one, min_version=one.first_version, max_version=one.last_version
                    )
                    for one in ApiKey
                ]
            )
        if isinstance(request, SaslHandshakeRequest):
            return self._handshake(request)
        if isinstance(request, SaslAuthenticateRequest):
            return self._authenticate(request)
        if not self._is_in or time.monotonic() > self._ends:
            return None
        assert key is ApiKey.METADATA, f"no answer for {key.name}"
        node = MetadataResponseBroker(
            node_id=1, host=self._broker.advertised_host, port=self._broker.port
        )
        return MetadataResponse(cluster_id="c", controller_id=1, brokers=[node])

    def _handshake(self, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
        offered = list(self._broker.mechanisms)
        if not offered:
            return SaslHandshakeResponse(error_code=int(ErrorCode.ILLEGAL_SASL_STATE))
        if request.mechanism not in offered:
            code = int(ErrorCode.UNSUPPORTED_SASL_MECHANISM)
            return SaslHandshakeResponse(error_code=code, mechanisms=offered)
        self._mechanism = request.mechanism
        if self._mechanism != "PLAIN":
            self._scram = ScramServer(f"sha{self._mechanism[-3:]}", self._broker.lie)
        return SaslHandshakeResponse(mechanisms=offered)

    def _authenticate(self, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        token = bytes(request.auth_bytes)
        if self._broker.lie == "endless":
            return SaslAuthenticateResponse(auth_bytes=b"v=" if self._is_in else b"")
        if self._mechanism == "PLAIN":
            answer = b"" if token == f"\0{USER}\0{PASSWORD}".encode() else None
            done = True
        else:
            assert self._scram is not None
            answer = self._scram.step(token)
            done = answer is not None and answer.startswith(b"v=")
        if answer is None:
            return SaslAuthenticateResponse(
                error_code=int(ErrorCode.SASL_AUTHENTICATION_FAILED),
                error_message="Authentication failed: Invalid username or password",
            )
        lifetime_ms = self._broker.lifetime_ms
        if done:
            self._is_in = True
            if lifetime_ms:
                self._ends = time.monotonic() + lifetime_ms / 1000
        return SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=lifetime_ms)
