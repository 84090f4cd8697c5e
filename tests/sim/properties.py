"""What each kind of simulation checks in addition to the plain kind."""

from raylog.simulation.properties import Property

OF_TRANSACTIONS = frozenset(
    {
        Property.COMMITTED_VISIBLE,
        Property.ABORTED_HIDDEN,
        Property.NOT_TORN,
        Property.OFFSETS_WITH_OUTPUT,
        Property.OFFSETS_AS_LOGGED,
        Property.READS_DECIDED,
        Property.READS_COMPLETE,
        Property.STABLE_AS_LOGGED,
        Property.MARKERS_FORWARD,
        Property.ABORTS_INDEXED,
        Property.TRANSACTIONS_END,
        Property.HASTE_GOES_UNPUNISHED,
    }
)
"""Checked in simulations with transactional clients."""
OF_GROUPS = frozenset(
    {
        Property.OFFSETS_FORWARD,
        Property.OFFSETS_OF_TOPIC,
        Property.ONE_GENERATION,
        Property.ONE_OWNER,
        Property.MEMBERS_FENCED,
        Property.GROUPS_SETTLE,
    }
)
"""Checked in simulations with members of groups."""
OF_CLIENTS = frozenset(
    {
        Property.WRITTEN_ONCE,
        Property.WRITTEN_IN_ORDER,
        Property.PROCESSED_ALL,
        Property.PROCESSED_ONCE,
        Property.COMMITS_PROCESSED,
        Property.COMMITS_IN_ORDER,
        Property.GROUPS_CATCH_UP,
    }
)
"""Checked in simulations with the real clients."""
OF_RETENTION = frozenset(
    {
        Property.GONE_BY_RIGHT,
        Property.DELETED_STAY_GONE,
        Property.AGED_GO,
        Property.NEWEST_KEPT,
        Property.PRODUCERS_EXPIRE,
    }
)
"""Checked in simulations that delete or compact records."""
OF_DISASTERS = frozenset(
    {
        Property.COPIES_KEPT,
        Property.OLDER_REFUSED,
        Property.REFUSAL_TOLD,
        Property.UNCLEAN_ELECTED,
        Property.GROWN,
    }
)
"""Checked in simulations that lose more than is guaranteed to survive."""
