"""Benchmarks of Raylog against Apache Kafka: same clients, same machine, in turn."""
