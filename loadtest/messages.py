"""Messages between the process that leads a run and those that make the load, over Locust's.

| message | to | what it holds |
|---|---|---|
| ASK_TIME | a worker | `asked_us`, by the leader's clock |
| TIME | the leader | `asked_us`, and the worker's `own_us`, `own_base_us` and `clock_id` |
| OFFSET | a worker | `offset_us` and `uncertainty_us` of its clock |
| PREPARE | a worker | its part of the run: what `Local` takes |
| BEGIN | all workers | `started_us`, by the leader's clock, and the first `factor` |
| FACTOR | all workers | `factor`, the share of the rates from `at_us` on, by the leader's clock |
| HURRY | all workers | `stop_s`, which users get to end |
| STOP | all workers | nothing: stop users, and report the last |
| REPORT | the leader | what happened since the last report; the last has `reached`, by reader |
| TROUBLE | the leader | why a worker cannot do its part |
"""

from __future__ import annotations

ASK_TIME = "raylog-ask-time"
TIME = "raylog-time"
OFFSET = "raylog-offset"
PREPARE = "raylog-prepare"
BEGIN = "raylog-begin"
FACTOR = "raylog-factor"
HURRY = "raylog-hurry"
STOP = "raylog-stop"
REPORT = "raylog-report"
TROUBLE = "raylog-trouble"
