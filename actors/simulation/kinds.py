"""Kinds of seeds: each has its own clients, faults and checks."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """A kind by the name that the command line has for it; the same seed differs between kinds."""

    PLAIN = "plain"
    """Producers and readers, under every fault that replication and metadata are to survive."""
    TRANSACTIONS = "transactions"
    """Clients write in transactions; faults of coordinators come on top."""
    GROUPS = "groups"
    """Members of groups, and topics that are deleted and made again."""
    RETENTION = "retention"
    """Records are deleted by age or by request, or compacted; clients lie about timestamps."""
    DISASTERS = "disasters"
    """More is lost than any guarantee covers: nothing may be made worse, and all comes back."""
    CLIENTS = "clients"
    """The real client: producers, members of groups and copying applications, which die as well."""
