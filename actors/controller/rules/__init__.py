"""Decides about brokers, topics, partitions and settings. No I/O."""
