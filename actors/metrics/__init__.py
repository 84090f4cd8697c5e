"""Metrics: the counts of processes, and how a broker exposes them to Prometheus."""
