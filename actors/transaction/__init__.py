"""Transactions: the coordinator's machine and its shell, and the way to it."""
