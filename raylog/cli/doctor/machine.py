"""Checks this machine, for `raylog doctor`."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from raylog.cli.doctor.findings import Finding, failure, ok, unknown, warning
from raylog.cli.output import counted, human_bytes

_MIB = 1024 * 1024
PYTHON_MIN, PYTHON_END = (3, 11), (3, 14)
"""The supported versions; the second one is exclusive."""
RAY_MIN = (2, 52)
MEMORY_OF_BROKER = 512 * _MIB
"""For all processes of a broker, including room for requests."""
MEMORY_OF_RAY = 1024 * _MIB
DESCRIPTORS_LOW, DESCRIPTORS_TOO_LOW = 65_536, 4_096
PROCESSES_LOW = 4_096
_ANSWER_S = 5.0
_NATIVE = ("cramjam", "crc32c", "lz4.frame", "msgpack", "re2", "uvloop", "zstandard")
"""Compiled packages. A wheel for another machine or Python fails only when it is imported."""


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """Facts about this machine; None: unknown."""

    python: tuple[int, int, int]
    kernel: str
    raylog: str
    ray: str | None
    """None: not installed."""
    broken: tuple[str, ...] = ()
    """Compiled packages that cannot be imported, and why."""
    cores: int = 1
    memory_total: int | None = None
    """The machine's, or the container's if that is less."""
    memory_available: int | None = None
    descriptors: tuple[int, int] = (-1, -1)
    """Soft and hard limit; -1: no limit."""
    processes: int = -1
    """Soft limit; -1: no limit."""
    is_clock_synchronized: bool | None = None
    java: str | None = None
    """Why Spark will not find Java; "": it will; None: Spark is not installed."""


@dataclass(frozen=True, slots=True)
class PortFacts:
    """Whether a broker could listen at an address."""

    address: str
    problem: str = ""
    do: str = ""


def gather() -> MachineFacts:
    """Gather facts about this machine."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    total, available = _memory()
    return MachineFacts(
        python=sys.version_info[:3],
        kernel=f"{platform.system()} {platform.release()} {platform.machine()}",
        raylog=importlib.metadata.version("raylog") if _is_installed("raylog") else _own_version(),
        ray=importlib.metadata.version("ray") if _is_installed("ray") else None,
        broken=tuple(_broken(_NATIVE)),
        cores=len(os.sched_getaffinity(0)),
        memory_total=total,
        memory_available=available,
        descriptors=(soft, hard),
        processes=resource.getrlimit(resource.RLIMIT_NPROC)[0],
        is_clock_synchronized=_is_synchronized(),
        java=_java() if find_spec("pyspark") is not None else None,
    )


def ports(addresses: Iterable[tuple[str, int]]) -> list[PortFacts]:
    """Try to listen where brokers would listen."""
    from raylog.cli.failures import CommandFailed
    from raylog.cli.start_checks import check_listening

    found = []
    for host, port in addresses:
        try:
            check_listening(host, port, 1)
        except CommandFailed as refused:
            problem = refused.failure
            found.append(
                PortFacts(f"{host}:{port}", problem.message, problem.hint or "choose another")
            )
        else:
            found.append(PortFacts(f"{host}:{port}"))
    return found


def check_client(facts: MachineFacts) -> list[Finding]:
    """Check what both clients and brokers need."""
    return [_versions(facts), _packages(facts), _clock(facts)]


def check_host(facts: MachineFacts, brokers: int) -> list[Finding]:
    """Check what a machine needs, besides `check_client`, to run this number of brokers."""
    found = [
        _ray(facts),
        _memory_enough(facts, brokers),
        _cores(facts, brokers),
        check_descriptors(facts),
        _processes(facts),
    ]
    return found if facts.java is None else [*found, _java_found(facts.java)]


def check_ports(found: Sequence[PortFacts]) -> list[Finding]:
    """Check whether brokers can listen."""
    bad = [one for one in found if one.problem]
    if not bad:
        return [ok("ports", f"free: {', '.join(one.address for one in found)}")]
    return [failure("ports", one.problem, one.do) for one in bad]


def check_down(data: Path, brokers: int, *, was_stopped: bool) -> Finding:
    """Return a finding about a cluster that is down: stopped, or ended without `raylog down`."""
    cluster = f"the cluster with data in {data} ({counted(brokers, 'broker')})"
    if was_stopped:
        return warning(
            "cluster",
            f"{cluster} is stopped, or runs on a Ray that raylog up did not start",
            f"start it: raylog up --data {data}; on a running Ray cluster: --address auto",
        )
    return failure(
        "cluster",
        f"{cluster} is down: its Ray processes ended without `raylog down`",
        f"find the cause: raylog logs --data {data}; start it again: raylog up --data {data}",
    )


def _versions(facts: MachineFacts) -> Finding:
    python = ".".join(map(str, facts.python))
    found = f"Raylog {facts.raylog}, Python {python}, {facts.kernel}"
    if PYTHON_MIN <= facts.python[:2] < PYTHON_END:
        return ok("versions", found)
    return failure("versions", found, "use Python 3.11, 3.12 or 3.13")


def _packages(facts: MachineFacts) -> Finding:
    if not facts.broken:
        return ok("packages", "all compiled packages can be imported")
    return failure(
        "packages",
        "; ".join(facts.broken),
        "install them for this machine: pip install --force-reinstall raylog",
    )


def _ray(facts: MachineFacts) -> Finding:
    if facts.ray is None:
        return failure("ray", "Ray is not installed", "pip install 'raylog[ray]'")
    numbers = tuple(int(part) for part in facts.ray.split(".")[:2] if part.isdecimal())
    if len(numbers) < len(RAY_MIN):
        return unknown("ray", f"Ray {facts.ray}")
    if numbers < RAY_MIN:
        wanted = ".".join(map(str, RAY_MIN))
        return failure("ray", f"Ray {facts.ray}", f"pip install 'ray>={wanted}'")
    return ok("ray", f"Ray {facts.ray}")


def _memory_enough(facts: MachineFacts, brokers: int) -> Finding:
    name = "memory"
    if facts.memory_available is None or facts.memory_total is None:
        return unknown(name, "the system does not report it")
    needed = MEMORY_OF_RAY + brokers * MEMORY_OF_BROKER
    found = (
        f"{human_bytes(facts.memory_available)} of {human_bytes(facts.memory_total)} are "
        f"available; Ray and {brokers} broker{'' if brokers == 1 else 's'} need "
        f"{human_bytes(needed)}"
    )
    if facts.memory_available < needed // 2:
        return failure(name, found, "stop other processes, or start fewer brokers here")
    if facts.memory_available < needed:
        return warning(name, found, "stop other processes, or start fewer brokers here")
    return ok(name, found)


def _cores(facts: MachineFacts, brokers: int) -> Finding:
    found = f"{facts.cores} for {brokers} broker{'' if brokers == 1 else 's'}"
    if facts.cores < brokers:
        return warning(
            "cores", found, "expect less throughput: one broker can use more than one core"
        )
    return ok("cores", found)


def check_descriptors(facts: MachineFacts) -> Finding:
    """Check the hard limit, to which brokers raise their soft limit. Clients open few files."""
    soft, hard = facts.descriptors
    most = hard if hard >= 0 else float("inf")
    found = f"{_limit(soft)}, at most {_limit(hard)}"
    do = "raise the hard limit: ulimit -Hn, LimitNOFILE= of systemd, or limits.conf"
    if most < DESCRIPTORS_TOO_LOW:
        return failure("open files", f"{found}: too few for connections and segments", do)
    if most < DESCRIPTORS_LOW:
        return warning("open files", f"{found}: few for many connections or partitions", do)
    return ok("open files", found)


def _processes(facts: MachineFacts) -> Finding:
    found = _limit(facts.processes)
    if 0 <= facts.processes < PROCESSES_LOW:
        return warning(
            "processes", f"{found}: Ray starts many threads, which count", "raise it: ulimit -u"
        )
    return ok("processes", found)


def _limit(value: int) -> str:
    return "no limit" if value < 0 else f"{value:,}"


def _clock(facts: MachineFacts) -> Finding:
    match facts.is_clock_synchronized:
        case None:
            return unknown("clock", "the system does not report whether it is synchronized")
        case True:
            return ok("clock", "synchronized")
        case _:
            return warning(
                "clock",
                "not synchronized: timestamps of records, and so retention, depend on it",
                "run chrony or systemd-timesyncd: timedatectl set-ntp true",
            )


def _java_found(why: str) -> Finding:
    if not why:
        return ok("java", "Spark finds Java 17")
    return warning("java", why, "if pipelines are to run here, install a JRE 17 and set JAVA_HOME")


# ---- gathering -------------------------------------------------------------------------------


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _own_version() -> str:
    import raylog

    return raylog.__version__


def _broken(packages: Iterable[str]) -> Iterable[str]:
    for package in packages:
        try:
            importlib.import_module(package)
        except ImportError as missing:
            yield f"{package}: {missing}"


def _memory() -> tuple[int | None, int | None]:
    """Return total and available memory: the machine's, or the container's if that is less."""
    try:
        meminfo = dict(
            line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines()
        )
        total, available = (
            int(meminfo[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable")
        )
    except (OSError, KeyError, ValueError, IndexError):
        return None, None
    limit, used, page_cache = (
        _number("/sys/fs/cgroup/memory.max"),
        _number("/sys/fs/cgroup/memory.current"),
        _number("/sys/fs/cgroup/memory.stat", "inactive_file"),
    )
    if limit is None or used is None or limit >= total:
        return total, available
    return limit, min(available, limit - used + (page_cache or 0))


def _number(path: str, name: str = "") -> int | None:
    """Return the number in a file, or the one after `name`."""
    try:
        words = ["", *Path(path).read_text().split()]
        return int(words[words.index(name) + 1])
    except (OSError, ValueError, IndexError):  # "max": no limit
        return None


def _is_synchronized() -> bool | None:
    """Ask systemd whether the clock is synchronized; None without systemd, as in containers."""
    if shutil.which("timedatectl") is None:
        return None
    try:
        answer = subprocess.run(
            ["timedatectl", "show", "--property=NTPSynchronized", "--value"],  # noqa: S607
            capture_output=True,
            text=True,
            timeout=_ANSWER_S,
            check=False,
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return None
    return {"yes": True, "no": False}.get(answer)


def _java() -> str:
    from raylog.raydp_jobs.java import JavaMissing, find_java

    try:
        find_java()
    except JavaMissing as missing:
        return str(missing)
    return ""
