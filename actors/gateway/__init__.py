"""The Kafka port: client connections, request routing, read-only maps of local segments."""
