"""The client's coroutines against brokers in memory, under virtual time.

Real: the client, from its API down to frames. Faked: sockets, brokers and clock (`cluster`), the
brokers' partitions (`producer_partitions`, `fetcher_partitions`), groups (`group`) and transactions
(`transactions`).
"""
