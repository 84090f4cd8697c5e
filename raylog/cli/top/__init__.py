"""The command `raylog top`: a live view of a cluster, problems first.

| module | what |
|---|---|
| `events` | facts learned about a cluster |
| `machine` | keeps them, and computes rates and lag; no I/O |
| `lag` | how a group's lag develops |
| `troubles` | problems, in order of severity |
| `tables` | rows: columns, order, filter |
| `reader` | queries the brokers |
| `scraping` | reads the brokers' `/metrics` |
| `looking` | runs the queries in a thread |
| `drawing` | renders the parts of the screen |
| `screen` | the terminal UI |
| `text` | one snapshot as text or JSON |
| `command` | the command |
"""
