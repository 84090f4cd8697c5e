"""Simulated clusters whose clients are the real client: its core, producers, consumers, groups."""
