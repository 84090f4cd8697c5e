"""Test worlds: for each, what is real and what is faked.

The docstring of each package describes its modules. Tools that are not worlds are in
`tests/support`.

| place          | real                                                              |
|----------------|-------------------------------------------------------------------|
| `storage`      | logs                                                              |
| `replica`      | replicas, up to their actors                                      |
| `coordination` | code that groups and transactions share                           |
| `group`        | the group coordinator, up to its actor                            |
| `transaction`  | the transaction coordinator, up to its actor                      |
| `controller`   | the controller's machine                                          |
| `broker`       | a broker's machine, brokers, voters, supervisors                  |
| `gateway`      | gateways                                                          |
| `client`       | the client                                                        |
| `servers`      | sockets; the servers behind them lie or hang                      |
| `embedded`     | brokers in one process, on real disks                             |
| `quorum`       | the machines of voters and controllers, as a searchable state     |
| `virtual_time` | actors in one process under virtual time, which can be cut off    |
| `metadata`     | metadata images, and snapshots in parts                           |
| `transcripts`  | not a world: commands in a file, each followed by its output      |
| `runtime`      | not a world: the fake clock, links and runtime                    |
| `decorators`   | not a world: decorators that run a coroutine in a world           |
"""
