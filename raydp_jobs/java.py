"""Finding Java 17, which Spark's JVMs need on every node."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

WANTED = 17
_VERSION = re.compile(r'version "(\d+)')
_ANSWER_S = 30


class JavaMissing(Exception):
    """There is no usable Java; the message says what to do."""


def find_java(environment: Mapping[str, str] | None = None) -> Path:
    """Return the `java` that Spark will start; raise JavaMissing unless it is version 17.

    Looks where Spark does: in JAVA_HOME if it is set, else on PATH.
    """
    environment = os.environ if environment is None else environment
    home = environment.get("JAVA_HOME")
    found = (
        shutil.which("java", path=str(Path(home) / "bin"))
        if home
        else shutil.which("java", path=environment.get("PATH", ""))
    )
    where = f"in JAVA_HOME={home}" if home else "on PATH"
    if found is None:
        raise JavaMissing(
            f"Spark needs Java {WANTED}, and there is no java {where}: install a JRE {WANTED} "
            "and set JAVA_HOME, on every node that runs executors"
        )
    version = _major_version(found)
    if version != WANTED:
        raise JavaMissing(f"expected Java {WANTED}, found {version or 'no version'} at {found}")
    return Path(found)


def _major_version(java: str) -> int | None:
    """Return the version that `java -version` prints; None if it does not answer."""
    try:
        done = subprocess.run(  # noqa: S603  # the user's own Java
            [java, "-version"], capture_output=True, text=True, timeout=_ANSWER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(done.stderr)
    return int(found.group(1)) if found else None
