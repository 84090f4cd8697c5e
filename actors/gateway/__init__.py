"""The Kafka port: client connections, request routing, and read-only maps of local segments."""
