"""Resource use of processes, from /proc."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Holdings(NamedTuple):
    """The resources of a set of processes."""

    anonymous_bytes: int
    """The processes' own memory. Mapped file pages do not count: other processes map them too."""
    descriptors: int


def holdings(pids: Iterable[int]) -> Holdings:
    """Return the sum over processes, all of which must be running."""
    processes = [Path("/proc") / str(pid) for pid in pids]
    return Holdings(sum(map(_anonymous_bytes, processes)), sum(map(_descriptors, processes)))


def _anonymous_bytes(process: Path) -> int:
    fields = dict(
        line.split(":", 1) for line in (process / "smaps_rollup").read_text().splitlines()[1:]
    )
    return int(fields["Pss_Anon"].split()[0]) * 1024


def _descriptors(process: Path) -> int:
    return len(os.listdir(process / "fd"))
