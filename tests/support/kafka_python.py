"""kafka-python 3.0 with workarounds; every test imports it from here."""

import socket
import time
import warnings
from typing import Any

with warnings.catch_warnings():
    # Its import reads resources through a function that newer Pythons deprecate.
    warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)
    import kafka
    import kafka.net.inet

__all__ = ["kafka", "subscribe"]

PATIENCE_S = 60.0


class _Socket(socket.socket):
    """A socket that nobody has to close.

    A client that is closed while it connects drops the new socket without closing it.
    """

    def __del__(self) -> None:
        self.close()


kafka.net.inet.KafkaNetSocket.socket = staticmethod(_Socket)


def subscribe(consumer: Any, topic: str, **options: Any) -> None:
    """Subscribe a `KafkaConsumer` and wait until its metadata has the topic.

    A leader that joins before that assigns no partitions, and joins again when it learns of them.
    If its poll ends first, the consumer forgets that it is joining: it never takes its partitions,
    and sends no more heartbeats.
    """
    consumer.subscribe([topic], **options)
    deadline = time.monotonic() + PATIENCE_S
    while not consumer.partitions_for_topic(topic):
        assert time.monotonic() < deadline, f"kafka-python does not find {topic}"
