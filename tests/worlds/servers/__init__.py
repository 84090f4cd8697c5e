"""Servers on real sockets that lie, hang, refuse, or are not part of the product.

Real: the client under test, its sockets and TLS. Faked: the broker (`secure_broker`,
`black_hole`), its responses (`lying_broker`, a proxy in front of a real broker), a schema registry
(`registry`).
"""
