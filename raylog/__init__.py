"""Raylog: a replicated log that speaks the Kafka wire protocol, as Ray actors."""

__version__ = "0.1.0"
