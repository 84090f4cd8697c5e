"""How many files a gateway opens, and what it does when descriptors run out."""

import resource
from pathlib import Path

import pytest

from raylog.actors.gateway import actor
from raylog.actors.gateway.descriptors import DescriptorBudget, descriptor_budget, open_files_max
from raylog.actors.gateway.maps import MAPS_MAX, SegmentMaps
from tests.worlds.gateway.actor import World, run


@pytest.mark.parametrize(
    ("limit", "budget"),
    [
        (256, DescriptorBudget(64, 128)),
        (1024, DescriptorBudget(256, 512)),
        (20_000, DescriptorBudget(MAPS_MAX, 17_440)),
        (1 << 31, DescriptorBudget(MAPS_MAX, (1 << 31) - MAPS_MAX - 512)),
    ],
)
def test_a_limit_is_divided(limit: int, budget: DescriptorBudget) -> None:
    assert descriptor_budget(limit) == budget
    assert descriptor_budget(2 * limit, shared=True) == budget


def test_the_limit_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_files_max() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda _: unlimited)
    assert open_files_max() == 1 << 31


def test_connections_beyond_the_limit_wait_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(actor, "open_files_max", lambda: 8)

    async def scenario(world: World) -> None:
        connections = world.gateway.connections
        clients = [world.client() for _ in range(3)]
        assert connections.has_room("PLAINTEXT", lambda: None)
        connections.comes("PLAINTEXT")
        assert not connections.has_room("PLAINTEXT", lambda: None), "one is just being accepted"
        clients[0].connection.connection_lost(None)  # who waited is told, and does not wait again
        connections.has_come("PLAINTEXT")
        clients.append(world.client())
        clients.append(world.client())
        resumed: list[bool] = []
        assert not connections.has_room("PLAINTEXT", lambda: resumed.append(True))
        assert "connections are open, more are not accepted" in caplog.text
        assert "ulimit -n" in caplog.text
        clients[1].connection.connection_lost(None)
        assert resumed == [True]

    run(scenario)


def test_maps_of_what_is_not_served_any_more_are_dropped(tmp_path: Path) -> None:
    maps = SegmentMaps()

    def read(name: str) -> bytes:
        found = maps.slice(str(tmp_path / name), "0.log", 2, 3)
        assert found is not None
        return bytes(found)

    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.log").write_bytes(b"0123456")
        assert read(name) == b"234"
    held = maps.slice(str(tmp_path / "a"), "0.log", 0, 7)
    for name in ("a", "b", "c"):
        (tmp_path / name / "0.log").unlink()
    maps.forget([str(tmp_path / "a"), str(tmp_path / "b"), "unknown"])
    assert read("c") == b"234"
    for name in ("a", "b"):
        with pytest.raises(FileNotFoundError):
            read(name)
    assert held is not None
    assert bytes(held) == b"0123456"
