"""Metrics: what processes count, and how a broker tells it to Prometheus."""
