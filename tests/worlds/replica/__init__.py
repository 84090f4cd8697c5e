"""Partition replicas on several brokers.

Real: Replica actors and their logs. Faked: disks (in memory), the clock, gateways, the
controller, and the transaction coordinator (`scripted_transactions`).
"""
