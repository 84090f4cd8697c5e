"""Optional packages: the extras of `pip install raylog[...]`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

_PACKAGES = {
    "arrow": ("numpy", "pyarrow"),
    "cli": ("rich", "textual", "typer"),
    "loadtest": ("gevent", "hdrh", "locust", "numpy", "plotly"),
    "opentelemetry": ("opentelemetry",),
    "protoc": ("grpc_tools",),
    "ray": ("ray",),
    "schemas": ("fastavro", "google", "httpx", "jsonschema", "referencing"),
    "spark": ("fastavro", "matplotlib", "pandas", "pyspark", "raydp"),
}
"""Import names that an extra of pyproject.toml brings."""


class MissingExtra(ImportError):
    """A call needs packages that an extra installs."""


@contextmanager
def needs(extra: str, caller: str) -> Iterator[None]:
    """Guard imports of an extra's packages; raises MissingExtra if one is not installed.

    `caller` names what the user called, such as "poll_table" or "raylog up". The error of any other
    missing module, such as a dependency of the package, is passed on.
    """
    assert extra in _PACKAGES, f"there is no extra {extra}"
    try:
        yield
    except ModuleNotFoundError as missing:
        package = _package(missing)
        if package not in _PACKAGES[extra]:
            raise
        raise _missing(extra, package, caller) from missing


def check(extra: str, caller: str) -> None:
    """Raise MissingExtra unless an extra's packages are installed. Imports nothing."""
    for package in _PACKAGES[extra]:
        if find_spec(package) is None:
            raise _missing(extra, package, caller)


def extra_of(missing: ModuleNotFoundError) -> str | None:
    """Return the extra that installs a module, if there is one."""
    package = _package(missing)
    return next((extra for extra, brought in _PACKAGES.items() if package in brought), None)


def _package(missing: ModuleNotFoundError) -> str:
    return (missing.name or "").partition(".")[0]


def _missing(extra: str, package: str, caller: str) -> MissingExtra:
    return MissingExtra(
        f"{caller} needs the package {package}, which is not installed: "
        f"pip install 'raylog[{extra}]'",
        name=package,
    )
