"""Declared pipelines: topics, SQL or a function, a topic or a folder, in one file.

    spec = load(Path("delays.toml"))
    run_pipeline(spec, spark, bootstrap, control)

Modules without Spark: `spec` (the file), `runs` and `register` (reports of runs), `state` (the
checkpoint). With Spark: `reading` and `formats` (records to views), `output` (rows to records),
`landing` (rows to files), `dead_letters`, `pipeline` (one micro-batch), `running` (until it is
stopped).
"""
