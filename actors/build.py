"""Which build of the code a process runs."""

BUILD = "0.1.0"
"""The package's version: a Broker ends children that run another."""
