"""Brokers without real gateways and replicas.

| module            | real                                  | faked                             |
|-------------------|---------------------------------------|-----------------------------------|
| `machine`         | a broker's machine                    | its children, metadata, clock     |
| `recording`       | brokers, voters, controller           | gateways, replicas (record calls) |
| `virtual_brokers` | the same under virtual time           | the same, and the network         |
| `voters`          | voters of the metadata log            | brokers, disks (in memory)        |
| `supervised`      | a supervised cluster and its operator | network, clock                    |
"""
