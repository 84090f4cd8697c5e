"""Embedded brokers on real disks.

Real: everything but the network between processes, since all brokers run in one process.
"""
