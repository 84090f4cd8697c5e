"""Decisions of the supervisor: which brokers to start or replace. Pure."""
