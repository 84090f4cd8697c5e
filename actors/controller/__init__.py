"""The one actor that decides about brokers, topics, partitions and configurations."""
