"""`python -m tests.fuzz --requests 1000000` starts a cluster on Ray and runs a campaign.

--seed 3 --episode 1207          one episode of a seed again
--replay .cache/malformed/X.json the frames of the connection that failed, one by one
--bootstrap HOST:PORT            any broker, then without processes to watch
"""

from __future__ import annotations

import shutil
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer

from bench.__main__ import end_on_termination
from bench.peers import Peer, Raylog, Reachable
from tests.cluster.malformed import actor_processes
from tests.fuzz.campaign import EVIDENCE, HUGE, replay, run_episodes, target_of
from tests.fuzz.episode import Target
from tests.fuzz.health import SETTINGS
from tests.fuzz.probe_clients import ProbeClients, Seen
from tests.fuzz.processes import Sampler
from tests.fuzz.survey import make_topic
from tests.fuzz.tally import Failure
from tests.fuzz.world import GOOD
from tests.support.wire_client import WireClient

GROWTH_MAX_BYTES = 64 * 1_048_576
REACHED_MIN = 0.6
WARM_UP = 0.05
"""Share of the requests that come before the memory is measured from."""

PROGRESS_S = 30.0
_FOREVER = 1 << 40
REAL_LINKS = Raylog(
    settings={
        **SETTINGS,
        "gateway.in.replica.process": "false",
    }
)
"""Gateway and replica in processes of their own, so that links are sockets."""


class Findings(Exception):
    """What a campaign must not have seen."""


def main(
    requests: Annotated[int, typer.Option(min=1)] = 1_000_000,
    seed: Annotated[int, typer.Option()] = 1,
    episode: Annotated[int, typer.Option(help="Run this episode alone.")] = -1,
    replay_file: Annotated[str, typer.Option("--replay", help="Send these frames alone.")] = "",
    bootstrap: Annotated[str, typer.Option(help="Aim at this broker and start none.")] = "",
    huge: Annotated[int, typer.Option(help="Elements of a huge array.")] = HUGE,
) -> None:
    """Run a campaign, an episode of it, or the frames of a connection."""
    end_on_termination()
    aim = Reachable("external", bootstrap) if bootstrap else REAL_LINKS
    with aim.run() as peer:
        if replay_file:
            for line in replay(peer.address, Path(replay_file)):
                typer.echo(line)
        else:
            numbers = range(_FOREVER) if episode < 0 else range(episode, episode + 1)
            campaign(peer, target_of(peer.address, seed, huge=huge), requests, numbers)


def campaign(peer: Peer, target: Target, requests: int, numbers: range) -> None:
    """Run episodes beside good clients and print what was seen; Findings if anything is wrong."""
    tally = target.tally
    topic = f"{GOOD}topic"
    host, _, port = peer.address.rpartition(":")
    with WireClient(host, int(port)) as client:
        make_topic(client, topic, 1, {})
    clients = ProbeClients(peer.address, topic, _gateway(peer))
    with Sampler(peer.mark) as sampler:
        try:
            with clients:
                before = _actors(peer)
                sampler.name({pid: name.partition("/")[2] for name, pid, _ in before})
                run_episodes(target, numbers, _Course(target, sampler, requests))
        finally:
            _print(target, sampler, clients.seen)
    after = _actors(peer)
    wrong = [f"{count} × {kind}" for kind, count in tally.failure_counts().items()]
    wrong += [f"died: {name}" for name in sampler.died]
    wrong += clients.seen.failures
    if before != after:
        wrong.append(f"actors before {before}, after {after}")
    if sampler.growth > GROWTH_MAX_BYTES:
        wrong.append(f"a process grew by {sampler.growth / 2**20:.0f} MiB")
    if len(numbers) > 1:
        wrong += [f"never asked: {name}" for name in tally.missing(target.served)]
        if tally.share_reached < REACHED_MIN:
            wrong.append(f"only {tally.share_reached:.0%} reached a handler's rules")
    if wrong:
        if peer.data:
            wrong.append(f"logs of all processes: {_kept_logs(Path(peer.data))}")
        raise Findings("\n".join(wrong))


def _kept_logs(data: Path) -> Path:
    """Where the logs of a campaign's cluster stay when its data goes."""
    kept = EVIDENCE / "logs"
    shutil.rmtree(kept, ignore_errors=True)
    logs = data / "run" / "ray" / "session_latest" / "logs"
    return Path(shutil.copytree(logs.resolve(), kept, ignore_dangling_symlinks=True))


def _actors(peer: Peer) -> list[tuple[str, int, int]]:
    return actor_processes(peer.data) if peer.data else []


def _gateway(peer: Peer) -> int:
    """The process of the gateway, 0 if it is not ours."""
    return next((pid for name, pid, _ in _actors(peer) if "/gateway/" in name), 0)


class _Course:
    """Says when a campaign is over; ends the warm-up, prints progress."""

    def __init__(self, target: Target, sampler: Sampler, requests: int) -> None:
        self._seed = target.seed
        self._tally = target.tally
        self._sampler = sampler
        self._requests = requests
        self._is_warm = False
        self._reported = 0
        """Failures that were printed."""
        self._began = self._printed = monotonic()

    def __call__(self) -> bool:
        sent = self._tally.sent
        if not self._is_warm and sent >= WARM_UP * self._requests:
            self._is_warm = True
            self._sampler.start()
        if monotonic() - self._printed > PROGRESS_S:
            self._printed = monotonic()
            per_s = sent / (self._printed - self._began)
            typer.echo(
                f"{sent:,} requests, {per_s:.0f}/s, {self._tally.share_reached:.0%} reached rules, "
                f"{len(self._tally.failures)} failures, growth {self._sampler.growths()}"
            )
        for failure in self._tally.failures[self._reported :]:
            self._reported += 1
            _print_failure(self._seed, failure)
        return sent >= self._requests or bool(self._sampler.died)


def _print(target: Target, sampler: Sampler, seen: Seen) -> None:
    tally = target.tally
    for line in tally.lines():
        typer.echo(line)
    typer.echo(
        f"{len(tally.codes)} APIs and versions, {tally.sent:,} requests, "
        f"{tally.share_reached:.1%} reached a handler's rules"
    )
    typer.echo(
        "process, CPU time, MiB at the start / at its peak / at the end "
        f"({sampler.samples} samples)"
    )
    for line in sampler.lines():
        typer.echo(line)
    for line in seen.lines:
        typer.echo(line)


def _print_failure(seed: int, failure: Failure) -> None:
    typer.echo(
        f"FAILED {failure.what}\n  {failure.request}\n"
        f"  again: python -m tests.fuzz --seed {seed} --episode {failure.episode}\n"
        f"     or: python -m tests.fuzz --replay {failure.replay}"
    )


if __name__ == "__main__":
    typer.run(main)
