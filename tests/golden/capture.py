"""Captures golden frames: Apache Kafka and its Java tools, with a proxy between them.

Run by `make golden`; needs Java and Maven. The broker advertises the proxy's address, so its own
requests to itself (transaction markers) pass through as well. Of every API, version and
direction the largest frame that is still small is kept. Ids and times differ between captures.
"""

import contextlib
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from bench.jars import KafkaJars, fetch
from bench.peers import ApacheKafka
from raylog.wire.api import ApiKey
from raylog.wire.frame import decode_request_header
from tests.support.frames import Frame, write_frames

FRAME_BYTES_MAX = 1200
TOOL_TIMEOUT_S = 60.0
TOOLS = "org.apache.kafka.tools"
BROKER_SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


class Recorder:
    """Keeps one frame of each kind."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[tuple[ApiKey, int, str], Frame] = {}

    def frames(self) -> list[Frame]:
        with self._lock:
            return list(self._kept.values())

    def keep(self, frame: Frame) -> None:
        """Take the frame if it is small, and larger than the one at hand.

        Frames that name directories of this machine are left out.
        """
        if tempfile.gettempdir().encode() in frame.data:
            return
        kind = (frame.api_key, frame.version, frame.direction)
        with self._lock:
            known = self._kept.get(kind)
            if len(frame.data) <= FRAME_BYTES_MAX and (
                known is None or len(known.data) < len(frame.data)
            ):
                self._kept[kind] = frame


class Proxy:
    """Passes connections on to the broker and shows every frame to the recorder."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.broker_port = 0  # known once the broker runs; it is told our port first

    def start(self) -> None:
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return  # closed: the capture is over
            try:
                broker = socket.create_connection(("127.0.0.1", self.broker_port))
            except OSError:
                client.close()  # the broker is not up yet, or no longer
                continue
            asked: dict[int, tuple[ApiKey, int]] = {}
            for source, target, pump in (
                (client, broker, self._requests),
                (broker, client, self._responses),
            ):
                threading.Thread(target=pump, args=(source, target, asked), daemon=True).start()

    def _requests(
        self, client: socket.socket, broker: socket.socket, asked: dict[int, tuple[ApiKey, int]]
    ) -> None:
        for data in passed_on(client, broker):
            header, _ = decode_request_header(data)
            if isinstance(header.api_key, ApiKey):
                asked[header.correlation_id] = (header.api_key, header.api_version)
                self.recorder.keep(Frame(header.api_key, header.api_version, "request", data))

    def _responses(
        self, broker: socket.socket, client: socket.socket, asked: dict[int, tuple[ApiKey, int]]
    ) -> None:
        for data in passed_on(broker, client):
            kind = asked.pop(int.from_bytes(data[:4], "big", signed=True), None)
            if kind is not None:
                self.recorder.keep(Frame(*kind, "response", data))


def passed_on(source: socket.socket, target: socket.socket) -> Iterator[bytes]:
    """Frames read from `source`: each is seen first and sent to `target` then."""
    with contextlib.suppress(OSError), source, target, source.makefile("rb") as stream:
        while len(length := stream.read(4)) == 4:
            data = stream.read(int.from_bytes(length, "big"))
            yield data
            target.sendall(length + data)


class Tools:
    """Kafka's command-line tools, pointed at the proxy."""

    def __init__(self, jars: KafkaJars, bootstrap: str, directory: Path) -> None:
        self.jars = jars
        self.bootstrap = ("--bootstrap-server", bootstrap)
        self.directory = directory

    def file(self, name: str, text: str) -> str:
        path = self.directory / name
        path.write_text(text)
        return str(path)

    def run(self, tool: str, *arguments: str, stdin: str = "") -> None:
        """Run a tool to its end; some end in a refusal, which is captured like the rest."""
        main = tool if tool.startswith("kafka.") else f"{TOOLS}.{tool}"
        at = 1 if tool == "ClusterTool" else 0  # its options follow the subcommand
        placed = (*arguments[:at], *self.bootstrap, *arguments[at:])
        command = self.jars.command(main, *placed, heap="128M")
        done = subprocess.run(
            command,
            input=stdin,
            text=True,
            capture_output=True,
            timeout=TOOL_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            last = (done.stderr or done.stdout).strip().splitlines()[-1:]
            say(f"{tool} {' '.join(arguments)}: exit {done.returncode} {last}")


def topics_and_records(tools: Tools) -> None:
    topic = ("--topic", "golden")
    create = ("--partitions", "2", "--replication-factor", "1", "--config", "retention.ms=86400000")
    tools.run("TopicCommand", "--create", *topic, *create)
    tools.run("TopicCommand", "--alter", *topic, "--partitions", "3")
    keyed = ("--property", "parse.key=true", "--property", "key.separator=:")
    tools.run("ConsoleProducer", *topic, *keyed, stdin="a:1\nb:2\nc:3\n")
    tools.run("ConsoleProducer", *topic, "--compression-codec", "zstd", stdin="zzzz\n")
    records = ("--num-records", "4", "--record-size", "20", "--throughput", "-1")
    transaction = ("--transactional-id", "golden-tx", "--transaction-duration-ms", "50")
    tools.run("ProducerPerformance", *topic, *records, *transaction)
    tools.run("TopicCommand", "--describe", *topic)
    tools.run("GetOffsetShell", *topic, "--time", "earliest")
    tools.run("TransactionsCommand", "list")
    tools.run("TransactionsCommand", "describe", "--transactional-id", "golden-tx")
    tools.run("TransactionsCommand", "describe-producers", *topic, "--partition", "0")


def groups(tools: Tools) -> None:
    topic = ("--topic", "golden")
    read = ("--from-beginning", "--max-messages", "3", "--timeout-ms", "15000")
    modern = tools.file("modern.properties", "group.protocol=consumer\nclient.rack=r1\n")
    committed = tools.file("committed.properties", "isolation.level=read_committed\n")
    consumer = "consumer.ConsoleConsumer"
    tools.run(consumer, *topic, *read, "--group", "classic", "--consumer.config", committed)
    tools.run(consumer, *topic, *read, "--group", "modern", "--consumer.config", modern)
    command = "consumer.group.ConsumerGroupCommand"
    classic = ("--group", "classic")
    tools.run(command, "--list", "--state", "--type")
    tools.run(command, "--describe", *classic, "--members", "--verbose")
    tools.run(command, "--describe", "--group", "modern")
    tools.run(command, "--reset-offsets", "--to-earliest", "--execute", *classic, *topic)
    tools.run(command, "--delete-offsets", *classic, *topic)
    tools.run(command, "--delete", *classic)


def share_groups(tools: Tools) -> None:
    topic = ("--topic", "golden")
    group = ("--group", "share")
    start = ("--alter", "--add-config", "share.auto.offset.reset=earliest")
    entity = ("--entity-type", "groups", "--entity-name", "share")
    tools.run("kafka.admin.ConfigCommand", *entity, *start)
    read = ("--max-messages", "2", "--timeout-ms", "10000")
    tools.run("consumer.ConsoleShareConsumer", *topic, *group, *read)
    command = "consumer.group.ShareGroupCommand"
    tools.run(command, "--describe", *group)
    tools.run(command, "--describe", *group, "--members")
    tools.run(command, "--reset-offsets", "--to-earliest", "--execute", *group, *topic)
    tools.run(command, "--delete-offsets", *group, *topic)


def configs_and_acls(tools: Tools) -> None:
    command = "kafka.admin.ConfigCommand"
    topic = ("--entity-type", "topics", "--entity-name", "golden")
    tools.run(command, *topic, "--alter", "--add-config", "max.message.bytes=2000000")
    tools.run(command, *topic, "--describe")
    user = ("--entity-type", "users", "--entity-name", "alice")
    tools.run(command, *user, "--alter", "--add-config", "producer_byte_rate=1024")
    secret = "SCRAM-SHA-256=[iterations=4096,password=golden]"  # of nobody
    tools.run(command, *user, "--alter", "--add-config", secret)
    tools.run(command, *user, "--describe")
    metrics = ("--name", "m", "--metrics", "org.apache.kafka", "--interval", "60000")
    tools.run("ClientMetricsCommand", "--alter", *metrics)
    tools.run("ClientMetricsCommand", "--list")
    who = ("--allow-principal", "User:alice", "--operation", "Read", "--topic", "golden")
    tools.run("AclCommand", "--add", *who)
    tools.run("AclCommand", "--list")
    tools.run("AclCommand", "--remove", *who, "--force")


def cluster(tools: Tools) -> None:
    tools.run("BrokerApiVersionsCommand")
    tools.run("LogDirsCommand", "--describe", "--topic-list", "golden")
    tools.run("MetadataQuorumCommand", "describe", "--replication")
    tools.run("FeatureCommand", "upgrade", "--dry-run", "--feature", "transaction.version=2")
    tools.run("ClusterTool", "list-endpoints", "--include-fenced-brokers")
    tools.run("ClusterTool", "unregister", "--id", "9")
    election = ("--election-type", "preferred", "--topic", "golden", "--partition", "0")
    tools.run("LeaderElectionCommand", *election)
    partition = '{"topic":"golden","partition":0'
    moves = tools.file(
        "moves.json", '{"version":1,"partitions":[' + partition + ',"replicas":[1]}]}'
    )
    reassign = "reassign.ReassignPartitionsCommand"
    tools.run(reassign, "--execute", "--reassignment-json-file", moves)
    tools.run(reassign, "--list")
    cut = tools.file("cut.json", '{"version":1,"partitions":[' + partition + ',"offset":1}]}')
    tools.run("DeleteRecordsCommand", "--offset-json-file", cut)
    tools.run("TopicCommand", "--delete", "--topic", "golden")


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def main() -> None:
    """Capture everything anew."""
    recorder = Recorder()
    proxy = Proxy(recorder)
    advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
    with (
        tempfile.TemporaryDirectory() as directory,
        ApacheKafka(BROKER_SETTINGS | advertised).run() as broker,
    ):
        proxy.broker_port = int(broker.address.rpartition(":")[2])
        proxy.start()
        tools = Tools(fetch(), f"127.0.0.1:{proxy.port}", Path(directory))
        for part in (topics_and_records, groups, configs_and_acls, share_groups, cluster):
            part(tools)
            say(f"{part.__name__}: {len(recorder.frames())} frames")
    proxy.listener.close()
    write_frames(recorder.frames())


if __name__ == "__main__":
    main()
