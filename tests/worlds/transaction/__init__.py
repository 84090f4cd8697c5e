"""The transaction coordinator, from its shard's rules up to its actor.

| module       | real                            | faked                                           |
|--------------|---------------------------------|-------------------------------------------------|
| `shard`      | a shard's rules                 | log, links, clock                               |
| `random_run` | a shard's rules                 | clients, leaders and log, drawn from a seed     |
| `actor`      | TransactionCoordinator          | gateway, the partition's log, leaders, clock    |
"""
