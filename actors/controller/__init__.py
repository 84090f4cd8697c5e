"""The actor that decides about a cluster's brokers, topics, partitions and settings."""
