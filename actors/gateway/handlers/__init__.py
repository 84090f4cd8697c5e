"""One module per API, found by name (`table`)."""
