"""The consumers: groups, fetching, positions and commits."""
