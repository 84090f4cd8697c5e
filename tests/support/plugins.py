"""Plug-in packages that a test installs: a module and its registration metadata."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

Install = Callable[..., None]


@contextmanager
def installed(
    directory: Path, group: str, code: str, entries: Mapping[str, str], package: str = "strangers"
) -> Iterator[None]:
    """Install a package of one module, registered in `group` as entry name to class name."""
    directory.mkdir(parents=True, exist_ok=True)
    module = f"{package.replace('-', '_')}_plugin"
    (directory / f"{module}.py").write_text(dedent(code))
    info = directory / f"{package.replace('-', '_')}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    lines = [f"{name} = {module}:{target}" for name, target in entries.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]))
    sys.path.insert(0, str(directory))
    try:
        yield
    finally:
        sys.path.remove(str(directory))
        sys.modules.pop(module, None)
