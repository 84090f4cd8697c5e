"""Messages between the leading process and the processes that make load, sent by Locust.

| message | to | content |
|---|---|---|
| ASK_TIME | a worker | `asked_us`, on the leader's clock |
| TIME | the leader | `asked_us`, and the worker's `own_us`, `own_base_us` and `clock_id` |
| OFFSET | a worker | `offset_us` and `uncertainty_us` of its clock |
| PREPARE | a worker | its part of the run: the arguments of `Local` |
| BEGIN | all workers | `started_us`, on the leader's clock, and the first `factor` |
| FACTOR | all workers | `factor`, the share of the rates from `at_us` (leader's clock) |
| HURRY | all workers | `stop_s`, the time that users get to end |
| STOP | all workers | nothing: stop users and send the last report |
| REPORT | the leader | what happened since the last report; the last has `received`, by reader |
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
