# The environment of every machine of a Raylog cluster. `ray up` copies this file to ~/raylog/node.sh, and
# ~/.bashrc reads it, so that what Ray starts by ssh has it.
#
# To change: what is the same on all machines, here; what differs, in /etc/raylog/node.env of each machine, which
# is read below and has the same variables. A machine's labels are in /etc/raylog/labels.yaml (see labels.yaml).

RAYLOG_VENV=/opt/raylog                     # made by the first `ray up`; the ssh user must be able to write it
RAYLOG_STATE=/var/lib/raylog                # data; the ssh user must be able to write it
# Options of `ray start`. Brokers need no object store; Spark and Ray Data do.
RAYLOG_RAY_OPTIONS=--object-store-memory=100000000

test ! -r /etc/raylog/node.env || . /etc/raylog/node.env
RAYLOG_LABELS=
test ! -r /etc/raylog/labels.yaml || RAYLOG_LABELS=--labels-file=/etc/raylog/labels.yaml
export RAYLOG_VENV RAYLOG_STATE RAYLOG_RAY_OPTIONS RAYLOG_LABELS
export PATH="$RAYLOG_VENV/bin:$PATH"

# Whoever has not the token of ~/.ray/auth_token cannot call this Ray. Calls are not encrypted.
export RAY_AUTH_MODE=token
export RAY_USAGE_STATS_ENABLED=0
# Version 2 of the autoscaler does not bring up all machines of the provider `local` (Ray 2.60).
export RAY_enable_autoscaler_v2=0
# Ray gives its workers, and so brokers, the processor last, unless told otherwise.
export RAY_worker_niceness=0
# Where memory is short, Ray ends processes, and prefers those that it would start again, as brokers.
export RAY_memory_monitor_refresh_ms=0
# How long machines go on without the head. Ray's own default, 60 s, is too short to replace a machine.
export RAY_gcs_rpc_server_reconnect_timeout_s=600
# A machine that does not answer for 5 s is dead, so that its actors start elsewhere.
export RAY_health_check_initial_delay_ms=1000
export RAY_health_check_period_ms=1000
export RAY_health_check_timeout_ms=1000
export RAY_health_check_failure_threshold=5
