"""Spark pipelines that run beside the brokers on the same Ray cluster."""
