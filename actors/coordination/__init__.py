"""Code shared by group and transaction coordinators: steps, appends, hosting of shards, timers."""
