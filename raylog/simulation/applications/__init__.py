"""Simulations with the real client: its core, producers, consumers and groups."""
