"""Raylog beside Apache Kafka: same clients, same machine, one after the other."""
