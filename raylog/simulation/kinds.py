"""The simulation of each kind of seeds, that with real clients among them."""

from __future__ import annotations

from raylog.actors.simulation.kinds import Kind
from raylog.actors.simulation.run import SIMULATIONS
from raylog.actors.simulation.scenario import Simulation
from raylog.simulation.scenario import ClientSimulation


def simulation_of(kind: Kind) -> type[Simulation]:
    """What a seed of a kind runs."""
    return ClientSimulation if kind is Kind.CLIENTS else SIMULATIONS[kind]
