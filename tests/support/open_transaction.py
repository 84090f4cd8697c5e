"""One librdkafka transaction, held open until told to commit, in a process of its own.

`python -m tests.support.open_transaction BOOTSTRAP TOPIC ID TIMEOUT_MS VALUE` prints `open` when
its record is written, reads a line, and prints `committed` or the error's name. It adds `fatal` to
an error after which the producer cannot be used.
"""

from __future__ import annotations

import sys

from confluent_kafka import KafkaException, Producer

CALL_S = 30.0


def say(line: str) -> None:
    """Print one line for the parent process."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Begin, write, wait, commit."""
    bootstrap, topic, transactional_id, timeout_ms, value = sys.argv[1:]
    settings = {
        "bootstrap.servers": bootstrap,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": timeout_ms,
        "log_level": "0",
    }
    producer = Producer(settings)
    producer.init_transactions(CALL_S)
    producer.begin_transaction()
    producer.produce(topic, value, partition=0)
    producer.flush(CALL_S)
    say("open")
    sys.stdin.readline()
    try:
        producer.commit_transaction(CALL_S)
    except KafkaException as refused:
        error = refused.args[0]
        say(f"{error.name()} fatal" if error.fatal() else error.name())
    else:
        say("committed")


if __name__ == "__main__":
    main()
