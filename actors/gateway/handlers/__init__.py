"""One module per API, listed in `table`, which also answers ApiVersions."""
