"""Apache Kafka's jars and our Java clients, brought and compiled once into a cache."""

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
    """Something outside Python is needed and not there; the text says what."""


@dataclass(frozen=True, slots=True)
class KafkaJars:
    """A directory with a whole Apache Kafka: broker, tools and clients."""

    libs: Path
    log4j: Path
    classes: Path

    @property
    def classpath(self) -> str:
        """Our own classes first."""
        return f"{self.classes}{os.pathsep}{self.libs}{os.sep}*"

    def command(self, main: str, *arguments: str, heap: str = "512M") -> list[str]:
        """The command that runs a Java main class, with G1 and one fixed heap."""
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


def cache_directory() -> Path:
    """Where downloads are kept: RAYLOG_CACHE, or `raylog` in the user's cache directory."""
    configured = os.environ.get("RAYLOG_CACHE")
    if configured:
        return Path(configured)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "raylog"


def fetch(sources: Path = SOURCES) -> KafkaJars:
    """The jars, brought by Maven at the first call, and the classes of a folder's sources.

    Raises MissingToolError without Java or Maven.
    """
    root = cache_directory() / f"kafka-{KAFKA_VERSION}"
    libs = root / "libs"
    if shutil.which("java") is None or shutil.which("javac") is None:
        raise MissingToolError("a JDK 17 is needed: java and javac are not on the path")
    if not (root / "complete").exists():
        _copy_dependencies(root, libs)
    log4j = root / "log4j2.properties"
    log4j.write_text(_LOG4J)
    jars = KafkaJars(libs, log4j, root / "classes" / _digest(sources))
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
        raise MissingToolError(f"Maven could not bring Apache Kafka:\n{done.stdout[-2000:]}")
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
    building = jars.classes.with_name(f"{jars.classes.name}.{os.getpid()}")
    command = ["javac", "-nowarn", "-cp", f"{jars.libs}{os.sep}*", "-d", str(building), *sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise MissingToolError(f"javac failed:\n{done.stderr}")
    if jars.classes.exists():
        shutil.rmtree(building)
    else:
        building.rename(jars.classes)
