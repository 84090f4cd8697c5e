"""Ports of this machine."""

import socket


def free_port() -> int:
    """Return a port on which nobody was listening just now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port
