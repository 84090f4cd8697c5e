"""Partition replicas: the machine that decides and the shell that owns the logs."""
