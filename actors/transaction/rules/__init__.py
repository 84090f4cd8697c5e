"""Transactions and producer ids: state, requests, records. No I/O."""
