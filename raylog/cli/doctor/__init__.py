"""`raylog doctor`: looks for problems of a cluster or its clients.

| module | what it does |
|---|---|
| `findings` | defines the results of checks |
| `machine` | checks this machine |
| `volume` | checks a data directory and its volume |
| `addresses` | checks how clients reach the brokers |
| `clocks` | compares the brokers' clocks with this machine's |
| `cluster` | checks a cluster through its brokers |
| `on_ray` | checks a cluster through Ray |
| `command` | the command |

Checks are functions of facts. Functions that gather facts do not judge them.
"""
