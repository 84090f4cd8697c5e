"""Downloads Apache Kafka's jars and compiles our Java clients, once, into a cache."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

KAFKA_VERSION = "4.3.1"
LOG4J_VERSION = "2.25.4"
SOURCES = Path(__file__).parent / "java"

_ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-server", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-clients", KAFKA_VERSION),
    ("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION),
    ("org.apache.logging.log4j", "log4j-core", LOG4J_VERSION),
)

_LOG4J = """\
appender.console.type=Console
appender.console.name=console
appender.console.target=SYSTEM_ERR
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=WARN
rootLogger.appenderRef.console.ref=console
"""


class MissingToolError(Exception):
    """A required tool outside Python is missing. The text names it."""


class ToolFailedError(Exception):
    """A tool outside Python failed. The text is its output."""


@dataclass(frozen=True, slots=True)
class KafkaJars:
    """A directory with a complete Apache Kafka: broker, tools and clients."""

    libs: Path
    log4j: Path
    classes: Path
    archive: Path
    """A class data sharing archive of the JVM."""

    @property
    def classpath(self) -> str:
        """The class path, with our own classes first."""
        return f"{self.classes}{os.pathsep}{self.libs}{os.sep}*"

    def command(self, main: str, *arguments: str, heap: str = "512M") -> list[str]:
        """The command to run a Java main class with G1 and a fixed heap."""
        return [
            "java",
            f"-Xms{heap}",
            f"-Xmx{heap}",
            "-XX:+UseG1GC",
            "-XX:MaxGCPauseMillis=20",
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={self.log4j}",
            "-cp",
            self.classpath,
            main,
            *arguments,
        ]

    def brief(self, main: str, *arguments: str, heap: str = "256M") -> list[str]:
        """The command for a short-lived main class. It takes a third of the CPU time."""
        shared = f"-XX:SharedArchiveFile={self.archive}"
        return self._started_soon(heap, shared, str(self.classes), main, *arguments)

    def _started_soon(self, heap: str, sharing: str, classes: str, *rest: str) -> list[str]:
        # The archive is valid for class paths that begin with the one it was made for.
        path = [*sorted(str(jar) for jar in self.libs.glob("*.jar")), classes]
        return [
            "java",
            *("-Xlog:disable", sharing, f"-Xms{heap}", f"-Xmx{heap}"),
            *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"),
            f"-Dlog4j2.configurationFile={self.log4j}",
            *("-cp", os.pathsep.join(filter(None, path))),
            *rest,
        ]

    def make_archive(self) -> None:
        """Create the archive from the classes that a tool loads when it finds no broker."""
        settings = self.archive.with_name("nobody.properties")
        settings.write_text("request.timeout.ms=1\ndefault.api.timeout.ms=1\n")
        making = self.archive.with_suffix(".making")
        command = self._started_soon(
            "256M",
            f"-XX:ArchiveClassesAtExit={making}",
            "",
            *("org.apache.kafka.tools.TopicCommand", "--list", "--bootstrap-server", "127.0.0.1:1"),
            *("--command-config", str(settings)),
        )
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not making.exists():
            raise ToolFailedError(f"java could not archive its classes:\n{done.stderr}")
        making.rename(self.archive)


def cache_directory() -> Path:
    """The directory for downloads: RAYLOG_CACHE, or `raylog` in the user's cache directory."""
    configured = os.environ.get("RAYLOG_CACHE")
    if configured:
        return Path(configured)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "raylog"


def fetch(sources: Path = SOURCES) -> KafkaJars:
    """The jars, downloaded by Maven at the first call, and the compiled classes of a folder.

    Raises MissingToolError without Java or Maven, ToolFailedError if either fails.
    """
    root = cache_directory() / f"kafka-{KAFKA_VERSION}"
    libs = root / "libs"
    if shutil.which("java") is None or shutil.which("javac") is None:
        raise MissingToolError("a JDK 17 is needed: java and javac are not on the path")
    log4j = root / "log4j2.properties"
    jars = KafkaJars(libs, log4j, root / "classes" / _digest(sources), root / "tools.jsa")
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may start at once
        if not (root / "complete").exists():
            _copy_dependencies(root, libs)
        log4j.write_text(_LOG4J)
        if not jars.archive.exists():
            jars.make_archive()
        if not jars.classes.exists():
            _compile(jars, sources)
    return jars


def _copy_dependencies(root: Path, libs: Path) -> None:
    if shutil.which("mvn") is None:
        raise MissingToolError("Maven is needed to bring Apache Kafka: mvn is not on the path")
    libs.mkdir(parents=True, exist_ok=True)
    pom = root / "pom.xml"
    pom.write_text(_pom())
    command = ["mvn", "-B", "-q", "-f", str(pom), "dependency:copy-dependencies"]
    options = ["-DincludeScope=runtime", f"-DoutputDirectory={libs}"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ToolFailedError(f"Maven could not bring Apache Kafka:\n{done.stdout[-2000:]}")
    (root / "complete").touch()


def _pom() -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>\n"
        for group, artifact, version in _ARTIFACTS
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0">\n'
        "<modelVersion>4.0.0</modelVersion>\n"
        "<groupId>raylog.bench</groupId><artifactId>kafka</artifactId><version>1</version>\n"
        f"<packaging>pom</packaging>\n<dependencies>\n{dependencies}</dependencies>\n</project>\n"
    )


def _digest(sources: Path) -> str:
    digest = hashlib.sha256()
    for source in sorted(sources.glob("*.java")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _compile(jars: KafkaJars, folder: Path) -> None:
    sources = [str(source) for source in sorted(folder.glob("*.java"))]
    building = jars.classes.with_name(f"{jars.classes.name}.making")
    command = ["javac", "-nowarn", "-cp", f"{jars.libs}{os.sep}*", "-d", str(building), *sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ToolFailedError(f"javac failed:\n{done.stderr}")
    building.rename(jars.classes)
