"""What every process tells of itself."""

from __future__ import annotations

from raylog.actors.metrics.family import Scope, Table

LAG_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)

TABLE = Table(
    "Processes",
    Scope.PROCESS,
    "Actors that share a process are told once, as the one who owns it; the brokers of an embedded "
    "cluster tell the same process each.",
)
CPU_SECONDS = TABLE.counter(
    "raylog_process_cpu_seconds_total", "CPU time of the process, user and system."
)
RESIDENT_BYTES = TABLE.gauge(
    "raylog_process_resident_memory_bytes", "Memory of the process that is in RAM."
)
OPEN_FILES = TABLE.gauge("raylog_process_open_fds", "Open file descriptors.")
MAX_FILES = TABLE.gauge("raylog_process_max_fds", "How many file descriptors may be open.")
START_TIME = TABLE.gauge(
    "raylog_process_start_time_seconds", "When the process was started, since the Unix epoch."
)
LOOP_LAG = TABLE.histogram(
    "raylog_event_loop_lag_seconds",
    "How late the event loop ran a timer that was due, four times a second.",
    bounds=LAG_SECONDS,
)
