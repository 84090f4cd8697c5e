#!/bin/sh
# Waits for the notice that this machine is taken away (a spot or preemptible one), and stops its broker in time:
# on-notice.sh aws|gcp|azure
#
# Each cloud tells the machine itself, at an address of its own that needs no login:
#
#   aws    http://169.254.169.254/latest/meta-data/spot/instance-action: 404 until there is a notice, then about 120 s
#   gcp    http://metadata.google.internal/computeMetadata/v1/instance/preempted: FALSE, then TRUE and about 30 s
#   azure  http://169.254.169.254/metadata/scheduledevents: a "Preempt" event (also a "Terminate" one), at least 30 s;
#          every machine of an availability set or scale set is told of all of them, each event names whom it is about
#
# The broker hands leadership over and closes its logs, then Ray ends here. It starts again with the next machine that
# has its label and its disk. The cluster files of the clouds start this in the background; under systemd, where the
# unit's ExecStop does the same, `systemctl stop raylog` is what to run instead of the last line.
set -u
cloud=$1
exec 9> "${TMPDIR:-/tmp}/raylog-on-notice.lock"
flock -n 9 || exit 0 # it waits already

noticed() {
  case $cloud in
  aws)
    token=$(curl -sf -m 2 -X PUT http://169.254.169.254/latest/api/token \
      -H 'X-aws-ec2-metadata-token-ttl-seconds: 60') || return 1
    curl -sf -m 2 -o /dev/null -H "X-aws-ec2-metadata-token: $token" \
      http://169.254.169.254/latest/meta-data/spot/instance-action
    ;;
  gcp)
    curl -sf -m 2 -H 'Metadata-Flavor: Google' \
      http://metadata.google.internal/computeMetadata/v1/instance/preempted | grep -q TRUE
    ;;
  azure)
    name=$(curl -sf -m 2 -H 'Metadata: true' \
      'http://169.254.169.254/metadata/instance/compute/name?api-version=2020-06-01&format=text') || return 1
    curl -sf -m 2 -H 'Metadata: true' \
      'http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01' | python3 -c '
import json, sys
try:
    events = json.load(sys.stdin)["Events"]
except ValueError:
    events = []
ends = [one for one in events if one["EventType"] in ("Preempt", "Terminate")]
sys.exit(not any(sys.argv[1].lower() == name.lower() for one in ends for name in one["Resources"]))' "$name"
    ;;
  *)
    echo "expected aws, gcp or azure, found $cloud" >&2
    exit 2
    ;;
  esac
}

until noticed; do sleep "${RAYLOG_NOTICE_S:-5}"; done
echo "this machine is taken away"
raylog brokers stop --here --timeout 20
ray stop
