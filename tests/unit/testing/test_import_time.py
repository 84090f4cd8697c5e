"""What creating a producer imports, and how long that takes beside `import asyncio, ssl`."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ROUNDS = 9
ROUNDS_MAX = 60
"""Where it takes too long: neighbours on the same cores may have held up all rounds so far."""
RATIO_MAX = 1.6
"""Of CPU time, the interpreter's start included in both."""
STANDARD = "import asyncio, ssl"
PRODUCER = "from raylog.client import Producer; Producer('127.0.0.1:1')"
NOT_NEEDED = {
    *("cramjam", "crc32c", "lz4", "zstandard"),  # the codecs, until one is used
    *("h11", "msgpack", "pydantic", "re2", "uvloop"),  # the broker's
    *("numpy", "pyarrow", "ray", "rich", "typer"),  # extras'
    *("raylog.actors", "raylog.storage", "raylog.testing", "raylog.wire.walk"),
    *("raylog.client.admin.groups", "raylog.client.arrow", "raylog.client.schemas"),
    *("raylog.client.consumer.settings", "raylog.client.producer.transactional"),
    *("raylog.client.producer.pipeline", "raylog.client.producer.rows"),
    *("raylog.wire.codegen.decoder", "raylog.wire.codegen.encoder"),
    *("difflib", "ipaddress", "pathlib", "random", "urllib"),
}


def run(program: str) -> tuple[float, str]:
    """Run a program in a bare interpreter: its CPU time, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = f"import sys; sys.path[:0] = {[str(ROOT), *sys.path]!r}; "
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", found + program],
        check=True,
        capture_output=True,
        text=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


@pytest.mark.long
def test_a_producer_is_made_in_little_more_than_asyncio_and_ssl_take() -> None:
    run(PRODUCER)  # what is compiled is kept
    took: dict[str, list[float]] = {STANDARD: [], PRODUCER: []}
    standard, producer = 0.0, 1.0
    for number in range(ROUNDS_MAX):
        for program, times in took.items():
            times.append(run(program)[0])
        standard, producer = (min(times) for times in took.values())  # others only make it longer
        if number + 1 >= ROUNDS and producer <= RATIO_MAX * standard:
            break
    assert producer <= RATIO_MAX * standard, f"{producer:.3f} s beside {standard:.3f} s"


def test_a_producer_imports_only_what_it_needs() -> None:
    _, printed = run(f"{PRODUCER}; import json; print(json.dumps(list(sys.modules)))")
    assert NOT_NEEDED & set(json.loads(printed)) == set()
