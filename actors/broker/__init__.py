"""The actor that owns one data directory and supervises the actors that serve it."""
