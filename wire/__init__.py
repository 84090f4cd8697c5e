"""Encodes and decodes the Kafka protocol: bytes in, objects out, without I/O."""
