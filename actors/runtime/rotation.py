"""The secret of links replaced while brokers serve: who is told, in which order.

| step | stored                          | all processes     | then                             |
|------|---------------------------------|-------------------|----------------------------------|
| 1    | the old one, and the next       | accept both       | the new one may be proved        |
| 2    | the new one, and the one before | prove the new one | nobody proves the old one        |
| 3    | the new one                     | accept it alone   |                                  |

A step is stored first: a process that starts meanwhile reads it. The next step follows when every
process has said that it reads what is stored. What is stored says where an interrupted run goes on.
Links that are open stay open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from raylog.actors.names import broker_name
from raylog.actors.runtime.base import PeerLost, PeerTimeout
from raylog.actors.runtime.link_secret import LinkSecrets
from raylog.wire.errors import BrokerNotAvailable, KafkaError

ASK_MS = 10_000
ROUND_S = 1.0
ROUNDS = 10
"""How often processes that have started meanwhile are asked, too."""


class Asker(Protocol):
    """As `RayRuntime`."""

    async def names(self, prefix: str) -> set[str]:
        """Names of actors that begin so."""

    async def reread_secrets(self, name: str, timeout_ms: int) -> tuple[str, ...]:
        """Have a process read its secrets anew; returns their fingerprints."""


class Store(Protocol):
    """Where secrets are."""

    def read(self) -> LinkSecrets:
        """What is stored. Blocking."""

    def write(self, secrets: LinkSecrets) -> None:
        """Store it. Blocking."""


async def all_know(
    asker: Asker, cluster_id: str, broker_ids: Iterable[int], prints: tuple[str, ...] | None
) -> None:
    """Have every process of a cluster read its secrets anew, until none is left that has not.

    Raises BrokerNotAvailable, naming them, if a broker, or another process that lives, does not
    answer, or reads other secrets than those with the fingerprints (None: any).
    """
    brokers = {broker_name(cluster_id, one): f"broker {one}" for one in broker_ids}
    told: dict[str, tuple[str, ...]] = {}
    troubles: dict[str, str] = {}

    async def tell(name: str) -> None:
        try:
            found = await asker.reread_secrets(name, ASK_MS)
        except (PeerLost, PeerTimeout, KafkaError) as failure:
            troubles[name] = str(failure)
            return
        if prints is not None and found != prints:
            troubles[name] = "it reads another secret: is it on a machine with another file?"
            return
        troubles.pop(name, None)
        told[name] = found

    for _ in range(ROUNDS):
        living = {*brokers, *(await asker.names(f"{cluster_id}/"))}
        await asyncio.gather(*(tell(name) for name in living if name not in told))
        living = {*brokers, *(await asker.names(f"{cluster_id}/"))}
        troubles = {name: why for name, why in troubles.items() if name in living}
        if living <= told.keys():
            break
        await asyncio.sleep(ROUND_S if troubles else 0)
    if troubles:
        why = "; ".join(f"{brokers.get(name, name)}: {why}" for name, why in troubles.items())
        raise BrokerNotAvailable(f"not every process has read the secret. {why}")
    if prints is None and len({*told.values()}) > 1:
        raise BrokerNotAvailable(
            "processes read different secrets: "
            + "; ".join(f"{brokers.get(name, name)}: {','.join(one)}" for name, one in told.items())
        )


async def rotate(
    store: Store,
    know: Callable[[tuple[str, ...] | None], Awaitable[None]],
    fresh: bytes,
    tell: Callable[[str], None],
) -> LinkSecrets:
    """Replace the secret by `fresh`, or finish what an earlier run has begun; returns what holds.

    `know` is `all_know` of the cluster. Raises as that, and BrokerNotAvailable where another run is
    at work: side by side, each would end what the other has all prove. What was stored by then
    stays, and a later run goes on with it. Before anything is stored everybody must answer.
    """
    secrets = await asyncio.to_thread(store.read)
    await know(secrets.fingerprints)
    if len(secrets.accepted) > 1:
        tell("going on with a rotation that was interrupted")
    while True:
        if (await asyncio.to_thread(store.read)).to_bytes() != secrets.to_bytes():
            raise BrokerNotAvailable("somebody else replaces the secret at the same time")
        secrets = secrets.advanced(fresh)
        await asyncio.to_thread(store.write, secrets)
        await know(secrets.fingerprints)
        tell(_said(secrets))
        if len(secrets.accepted) == 1:
            return secrets


def _said(secrets: LinkSecrets) -> str:
    if secrets.coming is not None:
        return "every process accepts the old secret and the new one"
    if secrets.before is not None:
        return "every process proves the new secret"
    return "the old secret is accepted no more"
