"""Declared pipelines: topics, SQL or a function, a topic or a folder, in one file.

    spec = load(Path("delays.toml"))
    run_pipeline(spec, spark, bootstrap, watch)

Without Spark: `spec` (the file), `state` (what a run tells of itself). With it: `reading` and
`formats` (records to views), `output` (rows to records), `landing` (rows to files), `dead_letters`,
`pipeline` (one micro-batch), `running` (until it is stopped).
"""
