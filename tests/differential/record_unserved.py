"""Records Apache Kafka's answers about features that Raylog does not serve.

`python -m tests.differential.record_unserved`; needs Java and Maven. The broker has no authorizer,
and share groups are switched off. All cases are played to two new brokers, which must agree.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack

from bench.peers import ApacheKafka
from raylog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.differential.golden import write
from tests.differential.normalized import differences
from tests.differential.playing import Transcripts
from tests.differential.unserved_stage import RECORDED, play
from tests.support.wire_client import WireClient

_SAFE_DOWNGRADE = 2


def record() -> Transcripts:
    """What a fresh Apache Kafka answers."""
    with ExitStack() as running:
        address = running.enter_context(ApacheKafka().run()).address
        host, _, port = address.rpartition(":")
        with WireClient(host, int(port)) as client:
            off = FeatureUpdateKey(
                feature="share.version", max_version_level=0, upgrade_type=_SAFE_DOWNGRADE
            )
            answer = client.ask(UpdateFeaturesRequest(feature_updates=[off]), 1)
        assert answer.error_code == 0, answer
        return play(address)


def main() -> int:
    """Record, compare, write."""
    first, again = record(), record()
    unlike = differences(first, again)
    for line in unlike:
        print(line)  # noqa: T201 - its output
    if unlike:
        return 1
    write(first, RECORDED)
    print(f"{RECORDED}: {len(first)} answers")  # noqa: T201 - its output
    return 0


if __name__ == "__main__":
    sys.exit(main())
