"""Decides which replicas a broker opens, closes, leads and follows. Pure."""
