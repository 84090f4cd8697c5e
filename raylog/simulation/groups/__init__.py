"""Simulations with members of groups, and with topics that are deleted and created again."""
