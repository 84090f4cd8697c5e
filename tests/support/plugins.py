"""Packages with plug-ins, as they look when installed."""

from __future__ import annotations

from pathlib import Path


def install(site: Path, name: str, source: str, entry_points: str, version: str = "1.0") -> None:
    """Put a module `name` into a directory of `sys.path`, with what pip would note about it."""
    (site / f"{name}.py").write_text(source)
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(entry_points)
