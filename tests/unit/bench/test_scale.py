"""The benchmark of a large cluster runs on a small one."""

import asyncio
from pathlib import Path

import pytest

from bench import scale


def test_every_figure_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "HEARTBEAT_MS", 50)
    rows = dict(asyncio.run(scale.measured(tmp_path, 4, 120, 2, 1)))
    assert any(name.startswith("loss of a broker in sync for ") for name in rows)
    assert rows["a broker that is one record behind gets"].startswith("1 record, ")
    assert float(rows["- turns"]) >= 1
    assert all(rows.values())
