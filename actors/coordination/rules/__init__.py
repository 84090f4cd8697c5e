"""Shared by group and transaction coordinators: steps and their records. Pure."""
