"""Simulations with transactional clients: the clients, faults and checks."""
