"""The actor that owns one data directory and the actors that serve it."""
