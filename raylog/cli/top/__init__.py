"""`raylog top`: what a cluster does, live, and what is wrong with it first.

| module | what |
|---|---|
| `events` | what is learned about a cluster |
| `machine` | keeps it, and works out rates and lag; no I/O |
| `lag` | how a group's lag develops |
| `troubles` | what is wrong, in the order of severity |
| `tables` | rows: columns, order, filter |
| `reader` | asks the brokers |
| `scraping` | reads what brokers tell Prometheus |
| `screen` | the terminal |
| `text` | one look as text or JSON |
| `command` | the command |
"""
