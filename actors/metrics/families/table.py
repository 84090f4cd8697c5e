"""All metric families, by area and by name."""

from __future__ import annotations

from raylog.actors.metrics.families import process
from raylog.actors.metrics.family import Family

TABLES = (process.TABLE,)
FAMILIES: dict[str, Family] = {family.name: family for table in TABLES for family in table.families}
