"""All metric families, by area and by name."""

from __future__ import annotations

from raylog.actors.metrics.families import (
    broker,
    clients,
    controller,
    coordinators,
    gateway,
    process,
    replica,
    sinks,
)
from raylog.actors.metrics.family import Family

TABLES = (
    controller.TABLE,
    broker.TABLE,
    gateway.TABLE,
    replica.TABLE,
    coordinators.TABLE,
    coordinators.GROUPS_TABLE,
    coordinators.TRANSACTIONS_TABLE,
    clients.TABLE,
    process.TABLE,
    sinks.TABLE,
)
FAMILIES: dict[str, Family] = {family.name: family for table in TABLES for family in table.families}
