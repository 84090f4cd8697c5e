"""Runs the interceptors of topics in threads, with a time limit.

A plug-in that does not return cannot be stopped, so its thread is abandoned. Until it returns,
requests for its topic fail at once, so that no more threads are lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import TypeVar

from raylog.actors.common_messages import TopicId
from raylog.actors.config import BrokerSettings, interceptor_options, split_list
from raylog.actors.interceptors.api import Wanted
from raylog.actors.interceptors.chain import Chain, InterceptorFailed, InterceptorsUnusable
from raylog.actors.runtime.base import PeerTimeout, Runtime
from raylog.wire.errors import RequestTimedOut

log = logging.getLogger(__name__)
T = TypeVar("T")
LOAD_RETRY_MS = 10_000
"""Interceptors that failed to load are loaded again after this time."""


def wanted_by(topic: str, config: Mapping[str, str]) -> Wanted | None:
    """Return the interceptors in a topic's resolved configuration; None if there are none."""
    names = split_list(config.get("raylog.interceptors", ""))
    if not names:
        return None
    return Wanted(topic, names, tuple(sorted(interceptor_options(config).items())))


@dataclass(slots=True)
class _Call:
    """One call in a thread."""

    trace: list[str] = field(default_factory=list)
    ended: bool = False


class TopicInterceptors:
    """The interceptors of one topic, loaded by the first call."""

    def __init__(self, runtime: Runtime, wanted: Wanted, settings: BrokerSettings) -> None:
        self.wanted = wanted
        self._runtime = runtime
        self._timeout_ms = settings.number("raylog.interceptors.timeout.ms")
        self._files_dir = settings.raw("raylog.interceptors.files.dir")
        self._chain: Chain | None = None
        self._loading = Lock()
        self._unusable = ""
        """Why loading them failed, until they are loaded again."""
        self._retry_at_ms = 0.0
        self._lost: list[_Call] = []
        """Calls that were abandoned."""
        self._reported: set[tuple[str, type]] = set()

    @property
    def passes_fetch(self) -> bool:
        """Whether none of them needs to see fetched records; False until that is known."""
        return self._chain is not None and not self._chain.intercepts_fetch

    async def run(self, function: Callable[[Chain], T]) -> T:
        """Run `function(chain)` in a thread.

        Raises what it raises, InterceptorFailed, and RequestTimedOut at the time limit.
        """
        self._require_hope()
        call = _Call()
        try:
            return await self._runtime.run_foreign(
                partial(self._work, call, function), timeout_ms=self._timeout_ms
            )
        except PeerTimeout as late:
            self._lost.append(call)
            failure = RequestTimedOut(
                f"{self._culprit(call)} took more than {self._timeout_ms} ms "
                "(raylog.interceptors.timeout.ms)"
            )
            self._tell(call, failure)
            raise failure from late
        except InterceptorFailed as failure:
            if isinstance(failure, InterceptorsUnusable):
                self._unusable = str(failure)
                self._retry_at_ms = self._runtime.monotonic_ms() + LOAD_RETRY_MS
            self._tell(call, failure)
            raise

    def _require_hope(self) -> None:
        """Fail at once if a call would fail."""
        self._lost = [call for call in self._lost if not call.ended]
        if self._lost:
            culprit = self._culprit(self._lost[0])
            raise RequestTimedOut(f"{culprit} has not come back from an earlier call")
        if self._unusable and self._runtime.monotonic_ms() < self._retry_at_ms:
            raise InterceptorsUnusable(self._unusable)

    def _work(self, call: _Call, function: Callable[[Chain], T]) -> T:
        """Load the plug-ins if necessary, and do the work, in a thread."""
        try:
            with self._loading:
                if self._chain is None:
                    # Importing the search for packages takes longer than importing a whole gateway.
                    from raylog.actors.interceptors.loading import load_chain

                    self._chain = load_chain(self.wanted, self._files_dir)
            return function(self._chain.traced(call.trace))
        finally:
            call.ended = True

    def _culprit(self, call: _Call) -> str:
        names = call.trace[-1] if call.trace else ", ".join(self.wanted.names)
        return f"interceptor {names!r} of topic {self.wanted.topic}"

    def _tell(self, call: _Call, failure: Exception) -> None:
        """Log a failure once, so that a retrying producer does not fill the log."""
        cause = failure.__cause__
        what = (call.trace[-1] if call.trace else "", type(cause or failure))
        if what not in self._reported:
            self._reported.add(what)
            log.error("topic %s: %s", self.wanted.topic, failure, exc_info=cause)


class Interception:
    """The interceptors of all topics, kept while the settings name the same ones."""

    def __init__(self, runtime: Runtime, settings: BrokerSettings) -> None:
        self._runtime = runtime
        self._settings = settings
        self._topics: dict[TopicId, TopicInterceptors] = {}

    def of(
        self, topic_id: TopicId, topic: str, config: Mapping[str, str]
    ) -> TopicInterceptors | None:
        """Return a topic's interceptors for its resolved configuration; None if it has none."""
        wanted = wanted_by(topic, config)
        if wanted is None:
            self._topics.pop(topic_id, None)
            return None
        found = self._topics.get(topic_id)
        if found is None or found.wanted != wanted:
            found = TopicInterceptors(self._runtime, wanted, self._settings)
            self._topics[topic_id] = found
        return found

    def retain(self, topic_ids: Mapping[TopicId, object]) -> None:
        """Drop topics that no longer exist."""
        for topic_id in [one for one in self._topics if one not in topic_ids]:
            del self._topics[topic_id]
