"""The group coordinator, from the rules of one group up to its actor.

| module       | real                                   | faked                                    |
|--------------|----------------------------------------|------------------------------------------|
| `machine`    | the rules of one group                 | shard, log, links, clock                 |
| `classic`    | a classic group in `machine`           | the same                                 |
| `consumer`   | a KIP-848 group in `machine`           | the same, and its assignor               |
| `shard`      | a shard and its assignors              | log, links, clock                        |
| `actor`      | GroupCoordinator                       | gateway, the partition's log, clock      |

All requests, responses and records are encoded and decoded on their way.
"""
