"""A pytest plugin that records the lines of the areas that each test executes, and its seconds.

Use it by `-p tests.mutants.recording`, with a directory in `RAYLOG_MUTANTS_RECORD_TO`. There it
writes one JSON file per test file, which `covering.py` reads. Lines executed by an import or a
subprocess belong to no test.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

from tests.mutants.covering import Recorded, name_of
from tests.mutants.drawing import AREAS, ROOT

RECORD_TO = "RAYLOG_MUTANTS_RECORD_TO"


class Recorder:
    """Measures one pytest process. Each xdist worker has its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seconds: dict[str, float] = defaultdict(float)
        places = [place for places in AREAS.values() for place in places]
        self._coverage = coverage.Coverage(
            data_file=None, include=[str(ROOT / place / "*") for place in places]
        )
        self._coverage.set_option("run:disable_warnings", ["no-data-collected"])

    @pytest.hookimpl
    def pytest_sessionstart(self) -> None:
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._coverage.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self._coverage.switch_context("")

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration

    @pytest.hookimpl
    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        for file, recorded in self._recorded().items():
            (self._directory / name_of(file)).write_text(
                json.dumps(recorded, separators=(",", ":"))
            )

    def _recorded(self) -> dict[str, Recorded]:
        found: dict[str, Recorded] = {}
        numbers: dict[str, int] = {}
        for test, seconds in self._seconds.items():
            file = _file_of(test)
            recorded = found.setdefault(file, {"tests": [], "seconds": [], "lines": {}})
            numbers[test] = len(recorded["tests"])
            recorded["tests"].append(test)
            recorded["seconds"].append(round(seconds, 4))
        data = self._coverage.get_data()
        for measured in data.measured_files():
            path = str(Path(measured).relative_to(ROOT))
            for line, tests in data.contexts_by_lineno(measured).items():
                for test in filter(numbers.__contains__, tests):
                    lines = found[_file_of(test)]["lines"].setdefault(path, {})
                    lines.setdefault(str(line), []).append(numbers[test])
        return found


def _file_of(test: str) -> str:
    return test.partition("::")[0]


def pytest_configure(config: pytest.Config) -> None:
    """Start measuring, but not in xdist's controller, which runs no test."""
    if not getattr(config.option, "numprocesses", None) or hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(Path(os.environ[RECORD_TO])))
