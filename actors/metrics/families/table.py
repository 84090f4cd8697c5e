"""All metric families, by area and by name."""

from __future__ import annotations

from raylog.actors.metrics.families import broker, gateway, process, replica
from raylog.actors.metrics.family import Family

TABLES = (gateway.TABLE, replica.TABLE, broker.TABLE, process.TABLE)
FAMILIES: dict[str, Family] = {family.name: family for table in TABLES for family in table.families}
