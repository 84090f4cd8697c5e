"""Simulations whose clients are transactional: clients, faults, what must hold."""
