"""Replaces a section of docs/BENCHMARKS.md by the result of a run."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "BENCHMARKS.md"


def circumstances() -> str:
    """Machine, commit and date in one line."""
    changed = " with local changes" if _git("status", "--porcelain", "-uno") else ""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return (
        f"{_processor()}, {os.cpu_count()} cores, {memory:.0f} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()}; commit {_git('rev-parse', '--short', 'HEAD')}"
        f"{changed}; {datetime.now(UTC):%Y-%m-%d %H:%M} UTC; "
        f"load {os.getloadavg()[0]:.1f} at the end"
    )


def write_section(text: str, module: str = "bench") -> None:
    """Put `text` between a module's marks in the document. Creates it if it does not exist."""
    begin, end = (f"<!-- {word}: written by python -m {module} -->" for word in ("begin", "end"))
    section = f"{begin}\n{text.rstrip()}\n{end}"
    if not DOCUMENT.exists():
        DOCUMENT.parent.mkdir(exist_ok=True)
        DOCUMENT.write_text(f"# Benchmarks\n\n{section}\n")
        return
    old = DOCUMENT.read_text()
    if begin in old and end in old:
        before, _, rest = old.partition(begin)
        _, _, after = rest.partition(end)
        DOCUMENT.write_text(f"{before}{section}{after}")
    else:
        DOCUMENT.write_text(f"{old.rstrip()}\n\n{section}\n")


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else "unknown"
