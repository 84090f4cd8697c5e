"""One module per API; each message is one dataclass over all its versions."""
