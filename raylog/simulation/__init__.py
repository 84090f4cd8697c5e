"""Simulation of whole clusters in virtual time from one seed, with failing networks and disks."""
