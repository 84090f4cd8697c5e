"""What coordinators of groups and of transactions share: a shard's steps, its log, its timers."""
