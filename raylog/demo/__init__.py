"""The demonstration: real flights through a cluster, Spark and two kills, compared with pandas.

| module | what |
|---|---|
| `flights` | the flights of 2013 as events, weather and airlines as tables |
| `cluster` | a cluster in a temporary directory, its topics |
| `producing` | writing with librdkafka, all at once or day by day |
| `job` | the Spark pipeline: joins, windows, the exactly-once sink |
| `kills` | the executor and the partition leader that die under it |
| `figures` | the same figures by pandas, and the comparison |
| `show` | table and plots |
| `pipeline` | all of it in order |
| `clients` | the round trip through two clients, which needs no Java |
"""
