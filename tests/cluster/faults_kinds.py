"""The kinds of faults: what is hit, and how.

| fault | what is done |
|---|---|
| kill-WHO | SIGKILL |
| pause-WHO | SIGSTOP for 1 to 20 s |
| cut-one-way | packets from one machine to another are lost for 1 to 12 s, as in all cuts |
| cut-pair | both directions between two machines |
| cut-brokers | both directions between one machine and the two others; clients and Ray reach it |
| cut-clients | packets from clients to one broker |
| cut-all | both directions between one machine and everything else |
| kill-two | two processes of different brokers at once |
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from random import Random

from raylog.actors.names import BROKER, GATEWAY, REPLICA
from tests.cluster.faults_network import HUB, Network, pairs
from tests.cluster.three_node_cluster import BROKERS, ThreeNodeCluster, send

PAUSE_S = (1.0, 20.0)
CUT_S = (1.0, 12.0)


@dataclass(frozen=True, slots=True)
class Victim:
    """The processes or machines that a fault hits."""

    text: str
    pids: list[int]
    partitions: Collection[int]
    """Whose writes that concerns."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One planned fault."""

    text: str
    partitions: Collection[int]
    strike: Callable[[], None]
    seconds: float = 0.0
    """How long it lasts."""
    relieve: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class Scene:
    """What faults are chosen from."""

    cluster: ThreeNodeCluster
    random: Random
    topic: str

    def some_broker(self) -> int:
        """Any of them."""
        return self.random.randrange(BROKERS)

    def led_by(self, broker_id: int) -> list[int]:
        """The partitions that a broker leads; all where it leads none."""
        leaders = self.cluster.leaders(self.topic)
        return [one for one, leader in leaders.items() if leader == broker_id] or list(leaders)


# ---- who ---------------------------------------------------------------------------------


def leader(scene: Scene) -> Victim:
    """The replica process that leads some partition."""
    leaders = scene.cluster.leaders(scene.topic)
    partition = scene.random.choice(sorted(leaders))
    broker_id = leaders[partition]
    pid, held = scene.cluster.replica_of(broker_id, scene.topic, partition)
    led = [one for one in held if leaders[one] == broker_id]
    return Victim(f"leader replica of broker {broker_id}", [pid], led)


def follower(scene: Scene) -> Victim:
    """A replica process that follows some partition; what it leads is not looked at."""
    leaders = scene.cluster.leaders(scene.topic)
    partition = scene.random.choice(sorted(leaders))
    broker_id = scene.random.choice([one for one in range(BROKERS) if one != leaders[partition]])
    pid, held = scene.cluster.replica_of(broker_id, scene.topic, partition)
    followed = [one for one in held if leaders[one] != broker_id]
    return Victim(f"follower replica of broker {broker_id}", [pid], followed)


def gateway(scene: Scene) -> Victim:
    """A gateway."""
    broker_id = scene.some_broker()
    pid = scene.cluster.pid_of(GATEWAY, broker_id)
    return Victim(f"gateway of broker {broker_id}", [pid], scene.led_by(broker_id))


def broker(scene: Scene) -> Victim:
    """A Broker actor; its children outlive it."""
    broker_id = scene.some_broker()
    pid = scene.cluster.pid_of(BROKER, broker_id)
    return Victim(f"broker {broker_id}", [pid], scene.led_by(broker_id))


def controller(scene: Scene) -> Victim:
    """The controller, and whoever takes himself for it."""
    pids = list(scene.cluster.controllers())
    return Victim("controller", pids, scene.cluster.leaders(scene.topic))


def node(scene: Scene) -> Victim:
    """All processes of a machine, Ray's too."""
    broker_id = scene.some_broker()
    pids = scene.cluster.processes_of(broker_id)
    return Victim(f"node of broker {broker_id}", pids, scene.cluster.leaders(scene.topic))


def controller_node(scene: Scene) -> Victim:
    """The machine with the controller and some leader."""
    scene.cluster.settle_controller()
    hosts = set(scene.cluster.controllers().values())
    broker_id = next(one for one, at in scene.cluster.nodes.items() if at.node_id in hosts)
    pids = scene.cluster.processes_of(broker_id)
    text = f"controller's node, broker {broker_id}"
    return Victim(text, pids, scene.cluster.leaders(scene.topic))


WHO: dict[str, Callable[[Scene], Victim]] = {
    "leader": leader,
    "follower": follower,
    "gateway": gateway,
    "broker": broker,
    "node": node,
    "controller": controller,
    "controller-node": controller_node,
}

# ---- what --------------------------------------------------------------------------------


def kill(who: Callable[[Scene], Victim], scene: Scene) -> Fault:
    """SIGKILL."""
    victim = who(scene)
    strike = partial(send, signal.SIGKILL, victim.pids)
    return Fault(f"{victim.text} killed", victim.partitions, strike)


def pause(who: Callable[[Scene], Victim], scene: Scene) -> Fault:
    """SIGSTOP for a while."""
    victim, seconds = who(scene), scene.random.uniform(*PAUSE_S)
    return Fault(
        f"{victim.text} stopped for {seconds:.1f} s",
        victim.partitions,
        partial(send, signal.SIGSTOP, victim.pids),
        seconds,
        partial(send, signal.SIGCONT, victim.pids),
    )


def kill_two(scene: Scene) -> Fault:
    """Two processes at once."""
    first, second = scene.random.sample(range(BROKERS), 2)
    roles = [scene.random.choice((REPLICA, GATEWAY, BROKER)) for _ in range(2)]
    pids = [scene.cluster.pid_of(*one) for one in zip(roles, (first, second), strict=True)]
    text = f"{roles[0]} of broker {first} and {roles[1]} of broker {second} killed"
    strike = partial(send, signal.SIGKILL, pids)
    return Fault(text, scene.cluster.leaders(scene.topic), strike)


def cut(ways: Callable[[int, list[int]], tuple[str, list[tuple[int, int]]]], scene: Scene) -> Fault:
    """Lose what is sent on some ways for a while."""
    network = _network(scene)
    broker_id, *others = scene.random.sample(range(BROKERS), BROKERS)
    text, lost = ways(broker_id, others)
    seconds = scene.random.uniform(*CUT_S)

    def strike() -> None:
        for way in lost:
            network.cut(*way)

    return Fault(
        f"{text} for {seconds:.1f} s",
        scene.cluster.leaders(scene.topic),
        strike,
        seconds,
        network.heal,
    )


def _network(scene: Scene) -> Network:
    assert scene.cluster.network is not None, "cuts are chosen only where there is a network"
    return scene.cluster.network


def _one_way(broker_id: int, others: list[int]) -> tuple[str, list[tuple[int, int]]]:
    return f"broker {broker_id} unheard at {others[0]}", [(broker_id, others[0])]


def _pair(broker_id: int, others: list[int]) -> tuple[str, list[tuple[int, int]]]:
    return f"brokers {broker_id} and {others[0]} apart", pairs(broker_id, others[:1])


def _brokers(broker_id: int, others: list[int]) -> tuple[str, list[tuple[int, int]]]:
    return f"broker {broker_id} away from the others", pairs(broker_id, others)


def _all(broker_id: int, others: list[int]) -> tuple[str, list[tuple[int, int]]]:
    return f"broker {broker_id} away from everybody", pairs(broker_id, [*others, HUB])


def cut_clients(scene: Scene) -> Fault:
    """Lose what clients send to a broker."""
    network, broker_id = _network(scene), scene.some_broker()
    seconds = scene.random.uniform(*CUT_S)
    return Fault(
        f"broker {broker_id} deaf to clients for {seconds:.1f} s",
        scene.led_by(broker_id),
        partial(network.cut_clients, broker_id),
        seconds,
        network.heal,
    )


KINDS: dict[str, Callable[[Scene], Fault]] = {
    **{f"kill-{name}": partial(kill, who) for name, who in WHO.items()},
    **{f"pause-{name}": partial(pause, who) for name, who in WHO.items()},
    "kill-two": kill_two,
    "cut-one-way": partial(cut, _one_way),
    "cut-pair": partial(cut, _pair),
    "cut-brokers": partial(cut, _brokers),
    "cut-clients": cut_clients,
    "cut-all": partial(cut, _all),
}


def chosen(wanted: str, *, cuts: bool) -> list[str]:
    """Kinds by a list of names or beginnings of names; cuts only where they are possible.

    Raises ValueError for a name that is none.
    """
    kinds: dict[str, None] = {}
    for name in wanted.split(","):
        exact = [name] if name in KINDS else [one for one in KINDS if one.startswith(name)]
        if not exact:
            raise ValueError(f"no kind of fault is called {name}; there are {', '.join(KINDS)}")
        kinds |= dict.fromkeys(exact)
    return [one for one in kinds if cuts or not one.startswith("cut-")]
