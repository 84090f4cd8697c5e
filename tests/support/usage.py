"""What processes hold, from /proc."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Holdings(NamedTuple):
    """What a set of processes holds."""

    anonymous_bytes: int
    """Memory of their own. Pages of files are left out: others map them, too."""
    descriptors: int


def holdings(pids: Iterable[int]) -> Holdings:
    """Sum over processes that all run."""
    processes = [Path("/proc") / str(pid) for pid in pids]
    return Holdings(sum(map(_anonymous_bytes, processes)), sum(map(_descriptors, processes)))


def _anonymous_bytes(process: Path) -> int:
    fields = dict(
        line.split(":", 1) for line in (process / "smaps_rollup").read_text().splitlines()[1:]
    )
    return int(fields["Pss_Anon"].split()[0]) * 1024


def _descriptors(process: Path) -> int:
    return len(os.listdir(process / "fd"))
