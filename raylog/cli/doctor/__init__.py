"""`raylog doctor`: looks for what keeps a cluster, or a client of one, from working well.

| module | what |
|---|---|
| `findings` | what a check says |
| `machine` | this machine: facts, and what they mean |
| `volume` | a data directory and its volume: facts, and what they mean |
| `addresses` | brokers as a client reaches them: facts, and what they mean |
| `clocks` | clocks of brokers beside this machine's |
| `cluster` | a cluster through its brokers |
| `on_ray` | a cluster through its Ray |
| `command` | the command |

Checks are functions of facts; those that gather facts decide nothing.
"""
