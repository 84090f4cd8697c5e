"""One module per API. Each message is one dataclass over all its versions."""
