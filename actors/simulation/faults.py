"""What is done to a cluster: faults of every kind, drawn from the seed, and their end."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from raylog.actors.metadata.image import MetadataImage
from raylog.actors.names import BROKER, CONTROLLER, GATEWAY, REPLICA
from raylog.actors.simulation.cluster import Cluster
from raylog.actors.simulation.loop import OUTSIDE
from raylog.actors.simulation.network import CLIENT, Weather
from raylog.actors.simulation.world import Machine, Resident

_ROLES = (REPLICA, REPLICA, REPLICA, BROKER, CONTROLLER, GATEWAY)
_HOUR_MS = 3_600_000


class Faults:
    """Does one thing after the other to a cluster, and takes all of it back in the end."""

    def __init__(self, cluster: Cluster, random: Random, clients: int) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._random = random
        self._clients = [f"{CLIENT}-{number}" for number in range(clients)]
        self._tainted: dict[str, int] = {}
        """Machines that lost power: the broker epoch from which what they hold counts again."""
        self._kinds: list[tuple[Callable[[], None], int]] = [
            (self._kill, 6),
            (self._stop_node, 3),
            (self._lose_power, 3),
            (self._pause, 4),
            (self._cut_one_way, 2),
            (self._cut_both_ways, 3),
            (self._isolate, 3),
            (self._bad_weather, 3),
            (self._slow, 2),
            (self._jump_clock, 1),
            (self._disk_error, 2),
            (self._disk_full, 2),
        ]

    async def befall(
        self, seconds: float, pause_s: tuple[float, float], look: Callable[[], None]
    ) -> None:
        """Do things for some simulated seconds, with a look at what came of each before."""
        loop = self._world.loop
        end = loop.time() + seconds
        kinds = [kind for kind, _ in self._kinds]
        weights = [weight for _, weight in self._kinds]
        while loop.time() < end:
            await self._cluster.runtime.sleep(self._random.uniform(*pause_s))
            look()
            self._random.choices(kinds, weights)[0]()

    def heal(self) -> None:
        """End every fault; what had to do with a failed disk starts anew."""
        world = self._world
        world.tell("faults end")
        world.network.heal()
        for resident in world.residents():
            world.go_on(resident)
        for machine in self._cluster.machines:
            machine.disk.heal()
            if machine.up and machine.disk.failed:
                world.stop_machine(machine, power=False)
            machine.disk.failed.clear()
            if not machine.up:
                world.start_machine(machine)

    # ---- helpers -------------------------------------------------------------------------

    def _tell(self, text: str) -> None:
        self._world.tell(text)

    def _later(self, seconds: float, undo: Callable[[], None]) -> None:
        self._world.loop.call_later(seconds, undo, context=OUTSIDE)

    def _machine(self) -> Machine:
        return self._random.choice(self._cluster.machines)

    def _victim(self) -> Resident | None:
        found = self._cluster.of_role(self._random.choice(_ROLES))
        return self._random.choice(found) if found else None

    @staticmethod
    def _short(resident: Resident) -> str:
        return f"{resident.ref.name.partition('/')[2]} on {resident.machine.name}"

    # ---- processes and nodes -------------------------------------------------------------

    def _kill(self) -> None:
        victim = self._victim()
        if victim is not None:
            self._tell(f"kill {self._short(victim)}")
            self._world.kill(victim.ref.name)

    def _pause(self) -> None:
        victim = self._victim()
        if victim is not None and not victim.process.paused:
            seconds = self._random.choice((1.0, 2.0, 4.0, 8.0, 20.0)) * self._random.random() + 0.5
            self._tell(f"pause {self._short(victim)} for {seconds:.1f} s")
            self._world.pause(victim, seconds)

    def _stop_node(self) -> None:
        machine = self._machine()
        if machine.up:
            self._down(machine, power=False)

    def _lose_power(self) -> None:
        machine = self._machine()
        if machine.up and self._may_lose(machine):
            self._down(machine, power=True)

    def _down(self, machine: Machine, *, power: bool) -> None:
        seconds = self._random.choice((1.0, 5.0, 12.0)) * self._random.random() + 0.2
        how = "loses power" if power else "ends all processes"
        self._tell(f"{machine.name} {how} for {seconds:.1f} s")
        if power:
            self._tainted[machine.name] = self._broker_epoch(machine)
        self._world.stop_machine(machine, power=power)
        self._later(seconds, lambda: None if machine.up else self._world.start_machine(machine))

    def _broker_epoch(self, machine: Machine) -> int:
        """The newest that anybody knows of the machine's broker."""
        broker_id = self._cluster.machines.index(machine)
        known = [image.brokers.get(broker_id) for image in self._images()]
        return max((one.broker_epoch for one in known if one is not None), default=-1)

    def _images(self) -> list[MetadataImage]:
        """The metadata of the controllers, and of who else knows most."""
        others = max(self._cluster.images(), key=lambda image: image.offset, default=None)
        return [*self._cluster.controller_images(), *([] if others is None else [others])]

    def _may_lose(self, machine: Machine) -> bool:
        """Whether every partition has an in-sync replica elsewhere that holds all it should.

        Records are not synced before they are acknowledged: as in Kafka, they may be lost where
        several who hold them lose power before the first has caught up again.
        """
        images = self._images()
        for name, before in tuple(self._tainted.items()):
            other = next(one for one in self._cluster.machines if one.name == name)
            if all(self._epoch_in(image, other) > before for image in images):
                del self._tainted[name]
        if self._tainted:
            return False
        unsafe = {
            number
            for number, one in enumerate(self._cluster.machines)
            if one is machine or one.disk.failed or one.disk.full
        }
        return all(
            set(state.isr) - unsafe
            for image in images
            for topic in image.topics.values()
            for state in topic.partitions
        )

    def _epoch_in(self, image: MetadataImage, machine: Machine) -> int:
        known = image.brokers.get(self._cluster.machines.index(machine))
        return -1 if known is None else known.broker_epoch

    # ---- network -------------------------------------------------------------------------

    def _cut(self, pairs: list[tuple[str, str]], seconds: float) -> None:
        network = self._world.network
        for source, target in pairs:
            network.cut(source, target)

        def mend() -> None:
            for source, target in pairs:
                network.mend(source, target)

        self._later(seconds, mend)

    def _pair(self) -> tuple[str, str]:
        one, other = self._random.sample(self._cluster.machines, 2)
        return one.name, other.name

    def _seconds(self) -> float:
        return self._random.choice((1.0, 4.0, 12.0)) * self._random.random() + 0.3

    def _cut_one_way(self) -> None:
        source, target = self._pair()
        seconds = self._seconds()
        self._tell(f"nothing gets from {source} to {target} for {seconds:.1f} s")
        self._cut([(source, target)], seconds)

    def _cut_both_ways(self) -> None:
        source, target = self._pair()
        seconds = self._seconds()
        self._tell(f"{source} and {target} are cut off from each other for {seconds:.1f} s")
        self._cut([(source, target), (target, source)], seconds)

    def _isolate(self) -> None:
        machine = self._machine()
        others = [one.name for one in self._cluster.machines if one is not machine]
        from_clients = self._random.random() < 0.5
        if from_clients:
            others += self._clients
        seconds = self._seconds()
        whom = "everybody" if from_clients else "all other machines"
        self._tell(f"{machine.name} is cut off from {whom} for {seconds:.1f} s")
        pairs = [(machine.name, other) for other in others]
        self._cut(pairs + [(other, one) for one, other in pairs], seconds)

    def _bad_weather(self) -> None:
        draw = self._random.random
        weather = Weather(draw() * 0.2, draw() * 0.2, draw() * 0.02)
        self._tell(
            f"calls are lost ({weather.lost:.2f}), doubled ({weather.twice:.2f}), "
            f"links break ({weather.broken:.3f})"
        )
        self._world.network.weather = weather

        def clear() -> None:
            if self._world.network.weather is weather:
                self._world.network.weather = Weather()

        self._later(self._seconds(), clear)

    def _slow(self) -> None:
        source, target = self._pair()
        factor = self._random.choice((10.0, 50.0, 300.0))
        self._tell(f"messages from {source} to {target} take {factor:.0f} times as long")
        self._world.network.slow_down(source, target, factor)
        self._later(self._seconds(), lambda: self._world.network.slow_down(source, target, 1.0))

    # ---- clocks and disks ----------------------------------------------------------------

    def _jump_clock(self) -> None:
        machine = self._machine()
        machine.clock_offset_ms = self._random.randint(-_HOUR_MS, _HOUR_MS)
        self._tell(f"the clock of {machine.name} is off by {machine.clock_offset_ms} ms")

    def _disk_error(self) -> None:
        machine = self._machine()
        call = self._random.choice(("pwritev", "fdatasync", "pread", "ftruncate", "open"))
        where = self._random.choice(("/topics/", "/topics/", "/metadata/", ""))
        self._tell(f"the next {call} of {machine.name} in {where or 'anything'} fails")
        machine.disk.fail_next(call, where, self._random.choice((1, 1, 3)))

    def _disk_full(self) -> None:
        machine = self._machine()
        seconds = self._seconds()
        self._tell(f"the disk of {machine.name} is full for {seconds:.1f} s")
        machine.disk.full = True

        def make_room() -> None:
            machine.disk.full = False

        self._later(seconds, make_room)
