"""Kinds of simulations. Each has its own clients, faults and checks."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """A kind, by its name on the command line. A seed draws other values for each kind."""

    PLAIN = "plain"
    """Producers and readers, with all faults that replication and metadata must survive."""
    TRANSACTIONS = "transactions"
    """Clients write in transactions. Faults of coordinators are added."""
    GROUPS = "groups"
    """Members of groups, and topics that are deleted and created again."""
    RETENTION = "retention"
    """Records are deleted by age or by request, or compacted. Clients send wrong timestamps."""
    DISASTERS = "disasters"
    """Losses that no guarantee covers: nothing may get worse, and everything comes back."""
    CLIENTS = "clients"
    """The real client: producers, members of groups and copying applications. They die, too."""
