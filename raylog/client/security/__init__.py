"""TLS and SASL for connections to brokers."""
