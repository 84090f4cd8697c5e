"""Starts, finds and stops Raylog clusters on a running Ray cluster of one or more machines.

The desired state is in Ray's key-value store and in the metadata
(`actors.supervisor.rules.desired`), not in a local file, so every machine with a node of that Ray
cluster can read it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from raylog.cli.failures import EXIT_UNREACHABLE, EXIT_USAGE, CommandFailed, last_line
from raylog.cli.output import counted, print_done
from raylog.cli.progress import within
from raylog.cli.quieting import output_to
from raylog.cli.start_checks import CONNECT_S, check_ray_answers, no_answer
from raylog.cluster_record import ClusterRecord

if TYPE_CHECKING:
    from raylog.actors.broker.messages import BrokerStatus
    from raylog.actors.metadata.records import BrokerWanted
    from raylog.actors.places import NodeEntry
    from raylog.actors.runtime.base import Runtime
    from raylog.actors.supervisor.placing import PlacementAsked, SurveyedNode
    from raylog.actors.supervisor.rules.desired import DesiredCluster

SECRET_VARIABLE = "RAYLOG_SECRET_FILE"  # noqa: S105 - the name of a variable
"""Environment variable that names the file with the secret of links, on every machine."""
AUTO = "auto"
Tell = Callable[[str], None]
READY_S = 120.0
"""How long brokers may take to serve."""
_REMIND_MS = 10_000
"""How often the reason is repeated if they do not."""
_ASK_MS = 5_000
_SURVEY_S = 60.0
_MISSED_S = 60.0
"""How long Ray may take to notice that a node is gone."""
_LOOK_S = 1.0
_SECRET_BYTES = 32


@contextmanager
def on_ray(address: str) -> Iterator[None]:
    """Be a driver of the Ray cluster at HOST:PORT or `auto`; raises CommandFailed."""
    from raylog.actors.runtime.ray_node import (
        connect,
        disconnect,
        is_connected,
        without_rays_output,
    )

    if is_connected():
        yield
        return
    if address != AUTO:
        check_ray_answers(address)  # before Ray is imported, which takes a while
    with without_rays_output(), output_to(Path(os.devnull)):
        from ray.exceptions import RayError

        if address == AUTO:
            address = _found_here()
            check_ray_answers(address)
        try:
            with within(CONNECT_S, no_answer(address)):
                connect(address)
        except (ConnectionError, RuntimeError, RayError) as failure:
            raise CommandFailed(
                f"cannot join the Ray cluster at {address}: {last_line(failure)}",
                "This machine must be a node of that Ray cluster. If Ray requires a token, set "
                "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH",
                EXIT_UNREACHABLE,
            ) from failure
    try:
        yield
    finally:
        disconnect()


def _found_here() -> str:
    """Return the address of this machine's Ray cluster; raises CommandFailed."""
    from raylog.actors.runtime.ray_node import found_address

    try:
        found = found_address()
    except ValueError as failure:
        raise CommandFailed(f"RAY_ADDRESS: {failure}", exit_code=EXIT_USAGE) from failure
    if found is None:
        raise CommandFailed(
            "Ray does not run here: this machine is not a node of a Ray cluster",
            "Start a node with: ray start --address HOST:PORT (the head: ray start --head), or "
            "set RAY_ADDRESS",
            EXIT_UNREACHABLE,
        )
    return found


def desired_clusters() -> list[DesiredCluster]:
    """Return the clusters in Ray's key-value store."""
    from raylog.actors.runtime import ray_kv
    from raylog.actors.supervisor.rules.desired import CLUSTER_KEY, read_desired

    found = ((key, ray_kv.get(key)) for key in ray_kv.keys(CLUSTER_KEY))
    return [read_desired(contents, key) for key, contents in found if contents is not None]


def the_cluster(address: str, data: Path | None = None) -> DesiredCluster:
    """Return the only Raylog cluster, or of several the one on `data`; raises CommandFailed."""
    known = desired_clusters()
    if not known:
        raise CommandFailed(
            f"the Ray cluster at {address} has no Raylog cluster",
            f"Start it: raylog up --address {address}",
            EXIT_UNREACHABLE,
        )
    if len(known) == 1:
        return known[0]
    clusters = [one for one in known if data is None or is_on(one, data)]
    if len(clusters) != 1:
        there = ", ".join(f"{one.cluster_id} on {_folder(one)}" for one in known)
        raise CommandFailed(
            f"the Ray cluster at {address} has the Raylog clusters {there}"
            + ("" if data is None or clusters else f", none on {data.absolute()}"),
            "Select one by its directory: --data DIR",
            EXIT_USAGE,
        )
    return clusters[0]


def cluster_to_change(address: str, data: Path | None = None) -> DesiredCluster:
    """Return `the_cluster` for a command that changes it, and print which one it is."""
    desired = the_cluster(address, data)
    name_cluster(desired)
    return desired


def name_cluster(desired: DesiredCluster) -> None:
    """Print which cluster a command changes, and on which Ray cluster."""
    from raylog.actors.runtime.ray_node import joined_address

    print_done(f"Raylog cluster {desired.cluster_id}, Ray cluster {joined_address()}")


def _folder(desired: DesiredCluster) -> str:
    return " and ".join(sorted({str(Path(one.directory).parent) for one in desired.brokers}))


def is_on(desired: DesiredCluster, data: Path) -> bool:
    """Whether a cluster keeps its data in a directory."""
    return any(Path(one.directory).parent == data.absolute() for one in desired.brokers)


def record_of(address: str, desired: DesiredCluster) -> ClusterRecord:
    """Return a cluster's record, for `raylog status` and others; this process must be a driver."""
    import asyncio

    statuses = asyncio.run(described(desired))
    return ClusterRecord(
        cluster_id=desired.cluster_id,
        broker_ids=[one.broker_id for one in desired.brokers],
        bootstrap=[one.bootstrap for one in statuses],
        ray_address=address,
        token_path=None,
        secret_path=desired.secret_source,
    )


async def described(desired: DesiredCluster) -> list[BrokerStatus]:
    """Return the status of each broker that answers."""
    import asyncio

    from raylog.actors.cluster import describe_cluster
    from raylog.actors.runtime.base import PeerLost, PeerTimeout
    from raylog.actors.runtime.ray import RayRuntime
    from raylog.wire.errors import KafkaError

    runtime = RayRuntime.of_driver(desired.secret_source)
    found: list[BrokerStatus] = []

    async def describe(broker_id: int) -> None:
        try:
            found.extend(await describe_cluster(runtime, desired.cluster_id, [broker_id]))
        except (PeerLost, PeerTimeout, KafkaError):
            return  # `raylog status` shows which do not answer

    await asyncio.gather(*(describe(one.broker_id) for one in desired.brokers))
    return sorted(found, key=lambda one: one.broker_id)


def troubles_of(address: str, desired: DesiredCluster) -> list[str]:
    """Describe why brokers of a cluster do not run."""
    import asyncio

    if desired.stopped:
        return [f"the cluster is stopped; start it with: raylog up --address {address}"]
    from raylog.actors.names import supervisor_name
    from raylog.actors.runtime.base import PeerLost, PeerTimeout
    from raylog.actors.runtime.ray import RayRuntime
    from raylog.actors.supervisor.notes import holds_of
    from raylog.actors.supervisor.rules.holds import describe_holds

    async def ask() -> dict[int, str]:
        runtime = RayRuntime.of_driver(desired.secret_source)
        name = supervisor_name(desired.cluster_id)
        held = describe_holds(await holds_of(runtime, desired.cluster_id))
        troubles: dict[int, str] = await runtime.call(name, "troubles", timeout_ms=_ASK_MS)
        return troubles | held  # the supervisor may not have seen new holds yet

    try:
        troubles = asyncio.run(ask())
    except (PeerLost, PeerTimeout) as lost:
        return [f"the supervisor does not answer: {lost}"]
    return [f"broker {broker_id}: {why}" for broker_id, why in sorted(troubles.items())]


# ---- starting ----------------------------------------------------------------------------


def start_on_ray(
    address: str,
    asked: PlacementAsked,
    *,
    insecure_ray: bool,
    tell: Tell,
    timeout_s: float = READY_S,
) -> ClusterRecord:
    """Start the brokers of a cluster, and wait until they serve; raises CommandFailed."""
    import asyncio

    from raylog.actors.runtime.base import PeerLost, PeerTimeout
    from raylog.wire.errors import KafkaError

    with on_ray(address):
        source = _secret_source(insecure_ray=insecure_ray)
        tell("checking the nodes")
        nodes = surveyed(asked.data, source)
        try:
            desired = _desired(asked, nodes)
        except KafkaError as refused:
            raise CommandFailed(str(refused)) from refused
        desired = replace(desired, secret_source=_given_secret(desired, source), stopped=False)
        name_cluster(desired)
        try:
            statuses = asyncio.run(_start(desired, tell, timeout_s))
        except (PeerLost, PeerTimeout, KafkaError) as failure:
            raise CommandFailed(
                f"some brokers do not serve: {last_line(failure)}",
                f"The supervisor keeps trying: raylog status --address {address}. To wait "
                f"longer, use --timeout; to stop the cluster: raylog down --address {address}",
            ) from failure
        bootstrap = [one.bootstrap for one in statuses]
        ids = [one.broker_id for one in desired.brokers]
        return ClusterRecord(
            desired.cluster_id, ids, bootstrap, address, None, desired.secret_source
        )


def _desired(asked: PlacementAsked, nodes: Sequence[SurveyedNode]) -> DesiredCluster:
    """Return the cluster that is known for this directory or found in it on nodes, or a new one."""
    import random

    from raylog.actors.supervisor.placing import (
        first_voters,
        is_misplaced,
        placed,
        settled,
        surviving,
    )
    from raylog.actors.supervisor.rules.desired import DesiredCluster
    from raylog.wire.uuids import random_uuid, to_base64

    known = [one for one in desired_clusters() if is_on(one, Path(asked.data))]
    desired = known[0] if known else surviving(nodes)
    is_new = desired is not None and is_misplaced(desired, nodes)
    if desired is not None and desired.brokers and not is_new:
        brokers = settled(desired, nodes)
        return replace(
            desired,
            brokers=brokers,
            is_in_metadata=desired.is_in_metadata and brokers == desired.brokers,
        )
    brokers = tuple(placed(asked, nodes))
    if not brokers:
        raise CommandFailed("this Ray cluster has no node for a broker")
    if desired is not None and not is_new:
        return replace(desired, brokers=brokers)
    chance = random.SystemRandom()
    voters = tuple((one, to_base64(random_uuid(chance))) for one in first_voters(brokers))
    if desired is not None:
        return replace(desired, brokers=brokers, voters=voters)
    return DesiredCluster(to_base64(random_uuid(chance)), brokers, voters)


async def _start(desired: DesiredCluster, tell: Tell, timeout_s: float) -> list[BrokerStatus]:
    from raylog.actors.cluster import describe_cluster
    from raylog.actors.runtime.ray import RayRuntime
    from raylog.actors.supervisor.actor import ensure_supervisor

    runtime = RayRuntime.of_driver(desired.secret_source)
    await runtime.kv_put(desired.key, desired.to_bytes())
    tell("starting the supervisor")
    await ensure_supervisor(runtime, desired.cluster_id, desired.brokers)
    await until_ready(runtime, desired, desired.brokers, tell, timeout_s)
    ids = [one.broker_id for one in desired.brokers]
    return await describe_cluster(runtime, desired.cluster_id, ids)


async def until_ready(
    runtime: Runtime,
    desired: DesiredCluster,
    brokers: Iterable[BrokerWanted],
    tell: Tell,
    timeout_s: float = READY_S,
) -> None:
    """Wait until brokers serve. Raises BrokerNotAvailable, naming those that do not and why.

    `tell` takes progress messages: which brokers serve, and from time to time why others do not.
    """
    import asyncio

    from raylog.wire.errors import BrokerNotAvailable

    began_ms = reported_ms = runtime.monotonic_ms()
    waiting = {one.broker_id: "" for one in brokers}
    total = len(waiting)
    while True:
        left_ms = began_ms + 1_000 * timeout_s - runtime.monotonic_ms()
        wait_ms = round(max(0, min(_ASK_MS, left_ms)))
        asked = sorted(waiting)
        answers = await asyncio.gather(
            *(_not_ready(runtime, desired, broker_id, wait_ms) for broker_id in asked)
        )
        troubles = await _troubles(runtime, desired) if any(answers) else {}
        after = f"after {(runtime.monotonic_ms() - began_ms) / 1000:.0f} s"
        is_due = runtime.monotonic_ms() - reported_ms >= _REMIND_MS
        for broker_id, answer in zip(asked, answers, strict=True):
            if answer is None:
                del waiting[broker_id]
                tell(f"broker {broker_id} serves ({total - len(waiting)} of {total})")
                continue
            why = troubles.get(broker_id, answer)
            if is_due or why != waiting[broker_id]:
                waiting[broker_id] = why
                tell(f"{after} broker {broker_id}: {why}")
                reported_ms = runtime.monotonic_ms()
        if not waiting:
            return
        if left_ms <= 0:
            found = "; ".join(f"broker {one}: {why}" for one, why in waiting.items())
            raise BrokerNotAvailable(
                f"{len(waiting)} of {counted(total, 'broker')} after {timeout_s:g} s: {found}"
            )
        await runtime.sleep(min(1.0, max(0.0, left_ms / 1000)))


async def _not_ready(
    runtime: Runtime, desired: DesiredCluster, broker_id: int, wait_ms: int
) -> str | None:
    """Wait for a broker; return why it does not serve yet, or None if it does."""
    from raylog.actors.names import broker_name
    from raylog.actors.runtime.base import PeerLost, PeerTimeout
    from raylog.wire.errors import KafkaError

    name = broker_name(desired.cluster_id, broker_id)
    try:
        await runtime.call(name, "ready", wait_ms, timeout_ms=wait_ms + _ASK_MS)
    except PeerLost:
        return "it has no process yet"
    except (PeerTimeout, KafkaError) as not_yet:
        return last_line(not_yet)
    return None


async def _troubles(runtime: Runtime, desired: DesiredCluster) -> dict[int, str]:
    """Ask the supervisor why brokers do not run; if it does not answer, report that for all."""
    from raylog.actors.names import supervisor_name
    from raylog.actors.runtime.base import PeerLost, PeerTimeout

    name = supervisor_name(desired.cluster_id)
    try:
        troubles: dict[int, str] = await runtime.call(name, "troubles", timeout_ms=_ASK_MS)
    except (PeerLost, PeerTimeout) as silent:
        lost = f"the supervisor, which starts it, does not answer: {last_line(silent)}"
        return {one.broker_id: lost for one in desired.brokers}
    return troubles


def _secret_source(*, insecure_ray: bool) -> str:
    """Return where actors find the secret; "": Ray's key-value store. Raises CommandFailed."""
    from raylog.actors.runtime.link_secret import FROM_ENVIRONMENT
    from raylog.actors.runtime.ray_node import asks_for_tokens

    if os.environ.get(SECRET_VARIABLE):
        return f"{FROM_ENVIRONMENT}{SECRET_VARIABLE}"
    if not asks_for_tokens() and not insecure_ray:
        raise CommandFailed(
            "this Ray cluster requires no token: anyone who reaches its port can run programs on "
            "all machines, and read the brokers' link secret in its key-value store",
            "Start Ray with RAY_AUTH_MODE=token, or pass --insecure-ray if you trust everyone in "
            f"that network. {SECRET_VARIABLE} keeps the secret out of Ray",
        )
    return ""


def _given_secret(desired: DesiredCluster, source: str) -> str:
    """Return the secret's source; if that is Ray's store, put a secret there unless it has one."""
    from raylog.actors.runtime.link_secret import give_to_ray

    return source or give_to_ray(desired.cluster_id, os.urandom(_SECRET_BYTES))


def surveyed(data: str, secret_source: str) -> list[SurveyedNode]:
    """Survey each node with a task, and print warnings; raises CommandFailed.

    Soon after a restart, Ray still lists nodes that are gone. Retries until Ray notices.
    """
    from ray.exceptions import NodeDiedError, TaskUnschedulableError

    deadline_s = time.monotonic() + _MISSED_S
    while True:
        try:
            found = _surveyed(data, secret_source)
            break
        except CommandFailed as failure:
            is_gone = isinstance(failure.__cause__, NodeDiedError | TaskUnschedulableError)
            if not is_gone or time.monotonic() > deadline_s:
                raise
        time.sleep(_LOOK_S)
    for one in found:
        for warning in one.facts.warnings:
            print_done(f"{_node_text(one.node)}: {warning}")
    return found


def _surveyed(data: str, secret_source: str) -> list[SurveyedNode]:
    import ray
    from ray.exceptions import RayError

    from raylog.actors.places import NODE_ID_LABEL
    from raylog.actors.runtime.ray_node import live_nodes
    from raylog.actors.supervisor.placing import LABEL, SurveyedNode
    from raylog.actors.supervisor.survey import NodeFacts, survey

    nodes = live_nodes()
    if any(LABEL in node.labels for node in nodes):
        nodes = [node for node in nodes if LABEL in node.labels]
    task = ray.remote(survey)
    asked = [
        task.options(
            num_cpus=0, label_selector={NODE_ID_LABEL: node.node_id}, max_retries=0
        ).remote(data, secret_source)
        for node in nodes
    ]
    found = []
    for node, answer in zip(nodes, asked, strict=True):
        try:
            facts: NodeFacts = ray.get(answer, timeout=_SURVEY_S)
        except (RayError, ModuleNotFoundError) as failure:
            raise CommandFailed(
                f"cannot check {_node_text(node)}: {last_line(failure)}",
                "Raylog must be installed there for the Python that Ray uses",
            ) from failure
        if facts.troubles:
            raise CommandFailed(f"{_node_text(node)}: {'; '.join(facts.troubles)}")
        found.append(SurveyedNode(node, facts))
    return found


def _node_text(node: NodeEntry) -> str:
    return f"node {node.node_id[:8]} at {node.address}"


# ---- stopping ----------------------------------------------------------------------------


def stop_on_ray(address: str, data: Path | None, timeout_s: float, tell: Tell) -> dict[int, str]:
    """Shut down the brokers of a cluster; its data and Ray stay.

    Returns the brokers that did not end cleanly, and why. Raises CommandFailed.
    """
    import asyncio

    with on_ray(address):
        desired = cluster_to_change(address, data)
        tell("shutting down brokers")
        return asyncio.run(_stop(desired, timeout_s))


async def _stop(desired: DesiredCluster, timeout_s: float) -> dict[int, str]:
    import asyncio

    from raylog.actors.cluster import stop_cluster
    from raylog.actors.names import supervisor_name
    from raylog.actors.runtime import ray_places
    from raylog.actors.runtime.ray import RayRuntime
    from raylog.actors.supervisor.rules.desired import share_name

    runtime = RayRuntime.of_driver(desired.secret_source)
    supervisor = supervisor_name(desired.cluster_id)
    await runtime.end_for_good(supervisor)
    stopped = replace(desired, stopped=True)
    await runtime.kv_put(stopped.key, stopped.to_bytes())
    running = await _running(runtime, desired)
    failures = await stop_cluster(
        runtime, desired.cluster_id, running, timeout_ms=round(1_000 * timeout_s)
    )
    await runtime.end_for_good(supervisor)  # a broker that started may have created it again
    for left in sorted(await runtime.names(f"{desired.cluster_id}/")):
        await runtime.end_for_good(left)
    for one in desired.brokers:
        await asyncio.to_thread(ray_places.release, share_name(desired.cluster_id, one.broker_id))
    return failures


async def _running(runtime: Runtime, desired: DesiredCluster) -> list[int]:
    """Return the brokers that can be shut down; print those whose machine is down."""
    from raylog.actors.names import BROKER, broker_name
    from raylog.actors.supervisor.rules.holds import carriers_of

    nodes = await runtime.nodes()
    names = await runtime.names(f"{desired.cluster_id}/{BROKER}/")
    running = []
    for one in desired.brokers:
        if not carriers_of(one, nodes):
            print_done(f"broker {one.broker_id} was not shut down: its machine is down")
        elif broker_name(desired.cluster_id, one.broker_id) in names:
            running.append(one.broker_id)
    return running
