"""On which addresses brokers' processes on Ray accept links from other machines."""

import asyncio
from typing import Any

import pytest

from raylog.actors.places import NodeEntry
from raylog.actors.runtime import ray_places
from raylog.actors.runtime.base import ActorSpec
from raylog.actors.runtime.link_secret import LinkSecrets
from raylog.actors.runtime.link_settings import LinkPlace, LinkSettings
from raylog.actors.runtime.ray import RayRuntime

LINKS = LinkSettings("0.0.0.0", "{external.host}", range(20_000, 20_010))
OWN = LinkSettings("10.0.0.9")


def on_node(monkeypatch: pytest.MonkeyPatch, address: str, **labels: str) -> None:
    node = NodeEntry("n", address, {key.replace("_", "-"): value for key, value in labels.items()})
    monkeypatch.setattr(ray_places, "this_node", lambda: node)


def test_a_ray_on_loopback_has_no_links_from_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    on_node(monkeypatch, "127.0.0.1")
    assert ray_places.outside(LINKS) is None


def test_the_address_of_the_node_is_the_default_and_hosts_are_those_of_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_node(monkeypatch, "10.0.0.5", raylog_external_host="out.example")
    assert ray_places.outside(None) == LinkPlace("10.0.0.5", "10.0.0.5")
    assert ray_places.outside(LINKS) == LinkPlace("0.0.0.0", "out.example", LINKS.ports)


@pytest.mark.parametrize(("given", "expected"), [(None, LINKS), (OWN, OWN)])
def test_spawned_actor_inherits_link_settings_unless_given_its_own(
    given: LinkSettings | None, expected: LinkSettings
) -> None:
    seen: list[ActorSpec] = []

    class Recording(RayRuntime):
        def _create(self, spec: ActorSpec) -> Any:
            seen.append(spec)
            raise ValueError("noted")

    async def story() -> None:
        runtime = Recording("i", "nowhere", LinkSecrets(b"s" * 32), links=LINKS)
        with pytest.raises(ValueError, match="noted"):
            await runtime.spawn(ActorSpec("c/replica/0/1", "replica", links=given))
        runtime.end(wait=False)

    asyncio.run(story())
    assert [spec.links for spec in seen] == [expected]
