"""The Kafka protocol as data: bytes in, objects out; no I/O."""
