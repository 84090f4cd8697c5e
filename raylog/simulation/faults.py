"""Draws faults of every kind from the seed, applies them to a cluster, and ends them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from raylog.actors.names import BROKER
from raylog.simulation.agreement import GivenOut
from raylog.simulation.cluster import Cluster
from raylog.simulation.damage import ROLES, Damage
from raylog.simulation.directories import DirectoryFaults
from raylog.simulation.losses import Losses
from raylog.simulation.network import CLIENT, Weather
from raylog.simulation.sequences import Sequences
from raylog.simulation.world import Machine

_HOUR_MS = 3_600_000
WEIGHTS = {
    "kill": 6,
    "restart_cleanly": 2,
    "stop_node": 3,
    "lose_power": 3,
    "copy_directory": 2,
    "lose_directory": 2,
    "lose_alone": 2,
    "restore_directory": 2,
    "pause": 4,
    "cut_one_way": 2,
    "cut_both_ways": 3,
    "isolate": 3,
    "bad_weather": 3,
    "slow": 2,
    "jump_clock": 1,
    "disk_error": 2,
    "disk_full": 2,
    "slow_machine": 1,
    "pause_followers": 3,
    "flicker": 4,
    "hold_back_change": 2,
    "part_histories": 3,
    "isolate_leader": 1,
    "cut_while_writing": 1,
    "shake_quorum": 1,
}
"""The relative frequency of each kind of fault, unless a simulation overrides it."""
_FACTORS = (0, 0, 1, 1, 4)
POWER = "lose_power"
LOSSES = (POWER, "lose_directory", "lose_alone", "restore_directory")
"""Kinds of faults after which a machine lacks records that it had acknowledged."""


def draw_weights(random: Random, weights: Mapping[str, int]) -> dict[str, int]:
    """Draw the weights of one seed. Few seeds have all kinds of faults, most have only some."""
    if random.random() < 0.3:
        return dict(weights)
    drawn = {kind: weight * random.choice(_FACTORS) for kind, weight in weights.items()}
    return drawn if any(drawn.values()) else dict(weights)


class Faults:
    """Applies one fault after another to a cluster, and ends all of them at last."""

    def __init__(
        self,
        cluster: Cluster,
        random: Random,
        clients: int,
        weights: Mapping[str, int],
        given_out: GivenOut,
        roles: tuple[str, ...] = ROLES,
    ) -> None:
        """`clients` is the number of clients, `given_out` the metadata committed so far."""
        self._cluster = cluster
        self._world = cluster.world
        self._random = random
        self._do = Damage(cluster, random, roles)
        self._sequences = Sequences(self._do)
        self._clients = [f"{CLIENT}-{number}" for number in range(clients)]
        self._losses = Losses(cluster, given_out)
        self._directories = DirectoryFaults(self._do, self._losses, self._stop_meanwhile)
        self._may_flicker = weights[POWER] > 0
        kinds = self._by_name()
        assert kinds.keys() == weights.keys(), "every kind has its weight"
        self._kinds = list(kinds.values())
        self._weights = [weights[kind] for kind in kinds]

    def _by_name(self) -> dict[str, Callable[[], None]]:
        """The method of each kind of fault."""
        return {
            "kill": lambda: self._do.kill(self._do.victim()),
            "restart_cleanly": self._restart_cleanly,
            "stop_node": self._stop_node,
            POWER: self._lose_power,
            "copy_directory": self._directories.copy,
            "lose_directory": self._directories.lose,
            "lose_alone": self._directories.lose_alone,
            "restore_directory": self._directories.restore,
            "pause": self._pause,
            "cut_one_way": self._cut_one_way,
            "cut_both_ways": self._cut_both_ways,
            "isolate": self._isolate,
            "bad_weather": self._bad_weather,
            "slow": self._slow,
            "jump_clock": self._jump_clock,
            "disk_error": self._disk_error,
            "disk_full": self._disk_full,
            "slow_machine": self._sequences.slow_machine,
            "pause_followers": self._sequences.pause_followers,
            "flicker": self._flicker,
            "hold_back_change": self._sequences.hold_back_change,
            "part_histories": self._sequences.part_histories,
            "isolate_leader": self._sequences.isolate_leader,
            "cut_while_writing": self._sequences.cut_while_writing,
            "shake_quorum": self._sequences.shake_quorum,
        }

    async def befall(
        self, seconds: float, pause_s: tuple[float, float], look: Callable[[], None]
    ) -> None:
        """Apply faults for some simulated seconds.

        Calls `look` before each, to check the effects.
        """
        loop = self._world.loop
        end = loop.time() + seconds
        while loop.time() < end:
            await self._cluster.runtime.sleep(self._random.uniform(*pause_s))
            look()
            self._random.choices(self._kinds, self._weights)[0]()

    def heal(self) -> None:
        """End every fault. Processes that had trouble with a failed disk restart."""
        world = self._world
        world.tell("faults end")
        self._do.is_over = True
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

    # ---- processes and nodes -------------------------------------------------------------

    def _pause(self) -> None:
        victim = self._do.victim()
        if victim is not None:
            longest_s = self._random.choice((1.0, 2.0, 4.0, 8.0, 20.0))
            self._do.pause(victim, longest_s * self._random.random() + 0.5)

    def _restart_cleanly(self) -> None:
        broker = self._do.victim(BROKER)
        if broker is not None:
            self._do.restart_cleanly(broker)

    def _stop_node(self) -> None:
        machine = self._do.machine()
        if machine.up:
            self._down(machine, self._outage_s(), power=False)

    def _stop_meanwhile(self, machine: Machine, seconds: float, do: Callable[[], None]) -> None:
        """Stop a machine for some seconds and call `do` meanwhile."""
        self._down(machine, seconds, power=False)
        do()

    def _lose_power(self) -> None:
        machine = self._do.machine()
        if machine.up and self._losses.may_lose_power(machine):
            self._down(machine, self._outage_s(), power=True)

    def _outage_s(self) -> float:
        return self._random.choice((0.2, 1.0, 5.0, 12.0)) * self._random.random() + 0.1

    def _flicker(self) -> None:
        """A machine loses power for a moment, and a leader hears from it late afterwards."""
        machine = self._sequences.needed_follower()
        if self._may_flicker and machine.up and self._losses.may_lose_power(machine):
            self._down(machine, 0.1, power=True)
            self._sequences.delay_return(machine)

    def _down(self, machine: Machine, seconds: float, *, power: bool) -> None:
        how = "loses power" if power else "ends all processes"
        self._do.tell(f"{machine.name} {how} for {seconds:.1f} s")
        if power:
            self._losses.lost(machine)
        self._world.stop_machine(machine, power=power)

        def start() -> None:
            if not (machine.up or self._do.is_over):  # else a later fault or `heal` starts it
                self._world.start_machine(machine)

        self._do.later(seconds, start)

    # ---- network -------------------------------------------------------------------------

    def _cut_one_way(self) -> None:
        source, target = self._do.pair()
        seconds = self._do.seconds()
        self._do.tell(f"nothing gets from {source} to {target} for {seconds:.1f} s")
        self._do.cut([(source, target)], seconds)

    def _cut_both_ways(self) -> None:
        source, target = self._do.pair()
        seconds = self._do.seconds()
        self._do.tell(f"{source} and {target} are cut off from each other for {seconds:.1f} s")
        self._do.cut([(source, target), (target, source)], seconds)

    def _isolate(self) -> None:
        machine = self._do.machine()
        from_clients = self._random.random() < 0.5
        others = self._do.others(machine) + (self._clients if from_clients else [])
        seconds = self._do.seconds()
        whom = "everybody" if from_clients else "all other machines"
        self._do.tell(f"{machine.name} is cut off from {whom} for {seconds:.1f} s")
        self._do.isolate(machine, others, seconds)

    def _bad_weather(self) -> None:
        draw = self._random.random
        weather = Weather(draw() * 0.2, draw() * 0.2, draw() * 0.02, draw() * 0.2)
        self._do.tell(
            f"calls are lost ({weather.lost:.2f}), doubled ({weather.twice:.2f}), "
            f"late ({weather.late:.2f}), links break ({weather.broken:.3f})"
        )
        self._world.network.weather = weather

        def clear() -> None:
            if self._world.network.weather is weather:
                self._world.network.weather = Weather()

        self._do.later(self._do.seconds(), clear)

    def _slow(self) -> None:
        source, target = self._do.pair()
        factor = self._random.choice((10.0, 50.0, 300.0))
        self._do.tell(f"messages from {source} to {target} take {factor:.0f} times as long")
        self._do.slow([(source, target)], factor, self._do.seconds())

    # ---- clocks and disks ----------------------------------------------------------------

    def _jump_clock(self) -> None:
        machine = self._do.machine()
        machine.clock_offset_ms = self._random.randint(-_HOUR_MS, _HOUR_MS)
        self._do.tell(f"the clock of {machine.name} is off by {machine.clock_offset_ms} ms")

    def _disk_error(self) -> None:
        machine = self._do.machine()
        call = self._random.choice(("pwritev", "fdatasync", "pread", "ftruncate", "open"))
        where = self._random.choice(("/topics/", "/topics/", "/metadata/", ""))
        self._do.tell(f"the next {call} of {machine.name} in {where or 'anything'} fails")
        machine.disk.fail_next(call, where, self._random.choice((1, 1, 3)))

    def _disk_full(self) -> None:
        machine = self._do.machine()
        seconds = self._do.seconds()
        self._do.tell(f"the disk of {machine.name} is full for {seconds:.1f} s")
        machine.disk.full = True

        def make_room() -> None:
            machine.disk.full = False

        self._do.later(seconds, make_room)
