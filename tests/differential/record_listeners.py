"""Records how Apache Kafka reads a broker's listeners.

`python -m tests.differential.record_listeners`; needs Java and Maven.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench import jars

RECORDED = Path(__file__).with_name("apache-kafka-4.3.1-listeners.json")
SOURCES = Path(__file__).parents[1] / "support" / "java"

_ONE = (
    "PLAINTEXT://:9092",
    "PLAINTEXT://h:1",
    "plaintext://h:1",
    "PLAINTEXT://[::1]:0",
    "PLAINTEXT://::1:9092",
    "PLAINTEXT://0.0.0.0:9092",
    "PLAINTEXT://[::]:9092",
    "PLAINTEXT://0:9092",
    ",",
    "PLAINTEXT://a:1,",
    "a:1",
    "PLAINTEXT://a",
    "PLAINTEXT://a:b",
    "PLAINTEXT://a:70000",
    "PLAINTEXT://a:99999999999",
    "PLAINTEXT://a:-1",
    "://a:1",
    "PLAINTEXT://a_b:1",
    "PLAINTEXT://a/b:1",
    "PLAINTEXT:/a:1",
    "PLAINTEXT://fe80::1%eth0:1",
    "PLAINTEXT://[fe80::1%eth0]:1",
    "PLAINTEXT://[a]:1",
    "PLAINTEXT://a]:1",
    "X://a:1",
    "SSL://a:1",
    "PLAINTEXT://a:1,SSL://b:2",
    "CONTROLLER://a:1",
    "PLAINTEXT://a:{b}",
)
"""Values of `listeners` alone."""
_SEVERAL = (
    "X://a:1,Y://b:2",
    "X://a:1,Y://b:1",
    "X://a:1,x://b:2",
    "X://a:1,X://a:1",
    "X://a:0,Y://a:0",
    "X://127.0.0.1:1,Y://[::1]:1",
    "X://127.0.0.1:1,Y://127.0.0.2:1",
    "X://127.0.0.1:1,Y://a:1",
    "X://127.0.0.1:1,Y://:1",
    "X://:1,Y://:1",
    "X://127.0.0.1:1,Y://[::1]:1,Z://a:1",
    "X://127.0.0.1:1,Y://[::1]:1,Z://127.0.0.2:1",
    "X://127.0.0.1:1,Y://[::1]:2,Z://127.0.0.1:1",
)
_MAPS = (
    "X:PLAINTEXT",
    "x:plaintext",
    "X:PLAIN",
    "X",
    "X:PLAINTEXT,",
    ",X:PLAINTEXT",
    ":PLAINTEXT",
    " X : PLAINTEXT ",
    "X:SSL,X:PLAINTEXT",
    "X:SSL,x:PLAINTEXT",
    "X:PLAINTEXT,Q:SASL_SSL",
    "",
    "Y:PLAINTEXT",
)
_ADVERTISED = (
    "X://c:3",
    "Y://c:3",
    "X://c:3,Y://c:3",
    "X://c:3,x://c:4",
    "X://c:3,Z://c:4",
    "X://:3",
    "X://0.0.0.0:3",
    "X://[::]:3",
    "X://c:0",
    "Q://c:3",
    "X://[2001:db8::1]:3",
)
_NAMES = ("A:B", "X-1_y.z", "X Y", "ß", "X ")


def cases() -> list[dict[str, str]]:
    """Settings of brokers."""
    x, xyz = "X:PLAINTEXT", "X:PLAINTEXT,Y:PLAINTEXT,Z:PLAINTEXT"
    found = [_case(one) for one in ("", *_ONE, "PLAINTEXT://a b:1", " ://a:1")]
    found += [_case(one, xyz, "X") for one in (*_SEVERAL, "X://a:1 , Y://b:2")]
    found += [_case("X://a:1", one, "X") for one in _MAPS]
    found += [_case("X://a:1,Y://b:2", xyz, "X", one) for one in ("", *_ADVERTISED)]
    found += [_case("X://a:1,Y://b:2", xyz, one, "X://c:3") for one in ("Y", "x", " X ", "", "Q")]
    found += [_case(f"{one}://a:1", f"{one}:PLAINTEXT", one) for one in _NAMES]
    found += [
        _case("X://a:1", x),
        _case("X://a:1", None, "X"),
        _case("X://a:1", f"{x},Z:PLAINTEXT", "Z"),
        _case("PLAINTEXT://a:1", x),
        _case("ß://a:1", "ß:PLAINTEXT", "SS"),
        _case("X://a:1,PLAINTEXT://b:2", f"{x},PLAINTEXT:PLAINTEXT"),
        _case("PLAINTEXT://a:1", advertised="SSL://b:2"),
        _case("PLAINTEXT://0.0.0.0:1", advertised="PLAINTEXT://out:2"),
    ]
    return found


def _case(
    listeners: str,
    protocols: str | None = None,
    inter_broker: str | None = None,
    advertised: str | None = None,
) -> dict[str, str]:
    settings = {
        "listeners": listeners,
        "listener.security.protocol.map": protocols,
        "inter.broker.listener.name": inter_broker,
        "advertised.listeners": advertised,
    }
    return {key: value for key, value in settings.items() if value is not None}


def record() -> list[dict[str, object]]:
    """Every case, and what Apache Kafka makes of it."""
    asked = cases()
    lines = ["\t".join(f"{key}={value}" for key, value in one.items()) for one in asked]
    done = subprocess.run(
        jars.fetch(SOURCES).brief("ListenersOracle"),
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    answers = done.stdout.splitlines()
    return [
        {"settings": one, **_answer(line.split("\t"))}
        for one, line in zip(asked, answers, strict=True)
    ]


def _answer(words: list[str]) -> dict[str, object]:
    if words[0] == "refused":
        return {"refused": words[1]}
    _, listening, advertised, inter_broker = words
    return {
        "listening": _endpoints(listening),
        "advertised": _endpoints(advertised),
        "inter_broker": inter_broker,
    }


def _endpoints(text: str) -> list[list[object]]:
    found: list[list[object]] = []
    for one in text.split(","):
        listener, _protocol, host, port = one.rsplit(" ", 3)
        found.append([listener, host, int(port)])
    return found


def main() -> int:
    """Record and write."""
    found = record()
    lines = ",\n".join(json.dumps(one, ensure_ascii=False) for one in found)
    RECORDED.write_text(f"[\n{lines}\n]\n")
    print(f"{RECORDED}: {len(found)} answers")  # noqa: T201 - its output
    return 0


if __name__ == "__main__":
    sys.exit(main())
