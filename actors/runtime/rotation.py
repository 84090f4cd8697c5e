"""Replaces the secret of links while brokers serve.

| step | stored                            | all processes     | then                             |
|------|-----------------------------------|-------------------|----------------------------------|
| 1    | the old secret and the next       | accept both       | the new one may be proved        |
| 2    | the new secret and the one before | prove the new one | nobody proves the old one        |
| 3    | the new secret                    | accept only that  |                                  |

A step is stored first, so that processes that start meanwhile read it. The next step follows when
every process has confirmed that it has read what is stored. From what is stored an interrupted run
can be resumed. Open links stay open.
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
"""How often to ask processes that have started meanwhile."""


class Asker(Protocol):
    """The part of `RayRuntime` that is used here."""

    async def names(self, prefix: str) -> set[str]:
        """Return names of actors with this prefix."""

    async def reread_secrets(self, name: str, timeout_ms: int) -> tuple[str, ...]:
        """Make a process read its secrets again; return their fingerprints."""


class Store(Protocol):
    """Where secrets are stored."""

    def read(self) -> LinkSecrets:
        """Read the secrets. Blocking."""

    def write(self, secrets: LinkSecrets) -> None:
        """Store the secrets. Blocking."""


async def all_know(
    asker: Asker, cluster_id: str, broker_ids: Iterable[int], prints: tuple[str, ...] | None
) -> None:
    """Make every process of a cluster read its secrets again, including those that start meanwhile.

    Raises BrokerNotAvailable, with their names, if brokers or other live processes do not answer,
    or read secrets with other fingerprints than `prints` (None accepts any).
    """
    brokers = {broker_name(cluster_id, one): f"broker {one}" for one in broker_ids}
    accepted: dict[str, tuple[str, ...]] = {}
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
        accepted[name] = found

    for _ in range(ROUNDS):
        living = {*brokers, *(await asker.names(f"{cluster_id}/"))}
        await asyncio.gather(*(tell(name) for name in living if name not in accepted))
        living = {*brokers, *(await asker.names(f"{cluster_id}/"))}
        troubles = {name: why for name, why in troubles.items() if name in living}
        if living <= accepted.keys():
            break
        await asyncio.sleep(ROUND_S if troubles else 0)
    if troubles:
        why = "; ".join(f"{brokers.get(name, name)}: {why}" for name, why in troubles.items())
        raise BrokerNotAvailable(f"not every process has read the secret. {why}")
    if prints is None and len({*accepted.values()}) > 1:
        raise BrokerNotAvailable(
            "processes read different secrets: "
            + "; ".join(
                f"{brokers.get(name, name)}: {','.join(one)}" for name, one in accepted.items()
            )
        )


async def rotate(
    store: Store,
    know: Callable[[tuple[str, ...] | None], Awaitable[None]],
    fresh: bytes,
    tell: Callable[[str], None],
) -> LinkSecrets:
    """Replace the secret by `fresh`, or finish an interrupted run; return the final secrets.

    `know` is `all_know` for the cluster. Raises as that, and BrokerNotAvailable if another run is
    in progress, because two runs would undo each other's steps. What was stored by then stays, and
    a later run resumes there. Nothing is stored until every process has answered.
    """
    secrets = await asyncio.to_thread(store.read)
    await know(secrets.fingerprints)
    if len(secrets.accepted) > 1:
        tell("going on with a rotation that was interrupted")
    while True:
        if (await asyncio.to_thread(store.read)).to_bytes() != secrets.to_bytes():
            raise BrokerNotAvailable("another run replaces the secret at the same time")
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
