"""Transactions: the coordinator's rules and shell, and the client for it."""
