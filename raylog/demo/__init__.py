"""The demonstration: real flights through a cluster and Spark, with two kills, checked by pandas.

| module | content |
|---|---|
| `flights` | the flights of 2013 as events, weather and airlines as tables |
| `cluster` | a cluster in a temporary directory, and its topics |
| `producing` | writes with librdkafka, all at once or day by day |
| `job` | the Spark pipeline: joins, windows, the exactly-once sink |
| `kills` | kills an executor and the partition leader during the run |
| `figures` | the same figures computed by pandas, and the comparison |
| `show` | table and plots |
| `pipeline` | all steps in order |
| `clients` | the round trip through two clients, without Java |
"""
