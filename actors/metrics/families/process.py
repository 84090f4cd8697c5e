"""Metrics of every process."""

from __future__ import annotations

from raylog.actors.metrics.family import Scope, Table

LAG_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)

TABLE = Table(
    "Processes",
    Scope.PROCESS,
    "Actors that share a process are reported once, as the actor that owns it. Each broker of an "
    "embedded cluster reports the same process.",
)
CPU_SECONDS = TABLE.counter(
    "raylog_process_cpu_seconds_total", "CPU time of the process, user and system."
)
RESIDENT_BYTES = TABLE.gauge(
    "raylog_process_resident_memory_bytes", "Resident memory of the process."
)
OPEN_FILES = TABLE.gauge("raylog_process_open_fds", "Open file descriptors.")
MAX_FILES = TABLE.gauge("raylog_process_max_fds", "Limit of open file descriptors.")
START_TIME = TABLE.gauge(
    "raylog_process_start_time_seconds",
    "Start time of the process, in seconds since the Unix epoch.",
)
LOOP_LAG = TABLE.histogram(
    "raylog_event_loop_lag_seconds",
    "How late the event loop ran a timer, measured four times a second.",
    bounds=LAG_SECONDS,
)
