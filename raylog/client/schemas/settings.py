"""Settings of schema registry clients, under Confluent's names or in Python's spelling."""

from __future__ import annotations

import difflib
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from raylog.client.errors import InvalidSetting

_PREFIX = "schema_registry_"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """Where the registries are, and how to query them."""

    url: tuple[str, ...]
    """Registries of one cluster; if one does not answer, the next is tried."""
    basic_auth_user_info: tuple[str, str] | None = None
    """User and password; may also be part of the URL."""
    bearer_auth_token: str | None = None
    ssl_ca_location: str | None = None
    """PEM file or folder of trusted certificates; None: those of the system."""
    ssl_certificate_location: str | None = None
    """PEM file of the client's own certificate."""
    ssl_key_location: str | None = None
    ssl_key_password: str | None = None
    enable_ssl_certificate_verification: bool = True
    request_timeout_ms: int = 10_000
    """For one request."""
    deadline_ms: int = 30_000
    """For one operation, including retries and pauses."""
    max_retries: int = 3
    """How often to retry all URLs after a failure that may be temporary."""
    retries_wait_ms: int = 100
    """Upper limit of the first pause; doubles each round, up to `retries_max_wait_ms`."""
    retries_max_wait_ms: int = 2_000
    cache_capacity: int = 1_000
    """Most entries in each cache of schemas."""
    cache_latest_ttl_sec: float | None = None
    """How long to cache a subject's latest version; None: for ever."""
    missing_id_ttl_sec: float = 1.0
    """How long to wait before an unknown id is requested again."""
    response_bytes_max: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        for name in ("request_timeout_ms", "deadline_ms", "cache_capacity", "response_bytes_max"):
            if getattr(self, name) < 1:
                raise InvalidSetting(f"expected {name} of 1 or more, found {getattr(self, name)}")
        for name in ("max_retries", "retries_wait_ms", "retries_max_wait_ms"):
            if getattr(self, name) < 0:
                raise InvalidSetting(f"expected {name} of 0 or more, found {getattr(self, name)}")
        if self.bearer_auth_token is not None and self.basic_auth_user_info is not None:
            raise InvalidSetting("expected either bearer_auth_token or user and password, not both")
        if self.ssl_certificate_location is None and (
            self.ssl_key_location is not None or self.ssl_key_password is not None
        ):
            raise InvalidSetting("ssl_key_location needs ssl_certificate_location")

    def tls(self) -> ssl.SSLContext:
        """Return the TLS context; raises InvalidSetting if a file cannot be used."""
        try:
            place = self.ssl_ca_location
            folder = place is not None and Path(place).is_dir()
            context = ssl.create_default_context(
                cafile=None if folder else place, capath=place if folder else None
            )
            if self.ssl_certificate_location is not None:
                context.load_cert_chain(
                    self.ssl_certificate_location, self.ssl_key_location, self.ssl_key_password
                )
        except OSError as failure:  # includes SSLError
            raise InvalidSetting(f"TLS files cannot be used: {failure}") from failure
        if not self.enable_ssl_certificate_verification:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def registry_settings(
    config: str | Mapping[str, object], settings: Mapping[str, object]
) -> RegistrySettings:
    """Merge a URL or a mapping with keyword arguments; raises InvalidSetting for unknown names."""
    given: dict[str, object] = {}
    sources = ({"url": config} if isinstance(config, str) else config, settings)
    for name, value in (item for source in sources for item in source.items()):
        field = name.replace(".", "_").removeprefix(_PREFIX)
        if field not in _READERS:
            near = difflib.get_close_matches(field, _READERS, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise InvalidSetting(f"a schema registry has no setting {name!r}{hint}")
        if field in given:
            raise InvalidSetting(f"the setting {field} is given twice")
        if value is not None:
            given[field] = _READERS[field](field, value)
    if "url" not in given:
        raise InvalidSetting("expected the url of a schema registry, found none")
    _take_user_info(given)
    return RegistrySettings(**given)  # type: ignore[arg-type]  # its reader has checked each type


def _take_user_info(given: dict[str, object]) -> None:
    """Move user and password out of the URLs."""
    urls = given["url"]
    assert isinstance(urls, tuple)
    plain, users = [], set()
    for url in urls:
        parts = urlsplit(url)
        if parts.username is not None:
            users.add((unquote(parts.username), unquote(parts.password or "")))
        host = parts.netloc.rpartition("@")[2]
        plain.append(urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", "")))
    if users and ("basic_auth_user_info" in given or len(users) > 1):
        raise InvalidSetting("expected user and password once: in the URLs or in a setting")
    given["url"] = tuple(plain)
    if users:
        given["basic_auth_user_info"] = users.pop()


def _urls(name: str, value: object) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise InvalidSetting(f"expected {name} as text or a list, found {value!r}")
    urls = tuple(part.strip() for part in parts if part.strip())
    for url in urls:
        found = urlsplit(url)
        if found.scheme not in ("http", "https") or not found.hostname:
            shown = url.rpartition("@")[2]
            raise InvalidSetting(f"expected {name} as http://HOST:PORT, found {shown!r}")
    if not urls:
        raise InvalidSetting("expected the url of a schema registry, found none")
    return urls


def _user_info(name: str, value: object) -> tuple[str, str]:
    pair = value.split(":", 1) if isinstance(value, str) else value
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise InvalidSetting(f"expected {name} as USER:PASSWORD")
    return str(pair[0]), str(pair[1])


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidSetting(f"expected {name} as text, found {type(value).__name__}")
    return value


def _whole(name: str, value: object) -> int:
    if isinstance(value, str) and value.strip().isdecimal():
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidSetting(f"expected {name} as a whole number, found {value!r}")
    return value


def _seconds(name: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 0:
        raise InvalidSetting(f"expected {name} as seconds, found {value!r}")
    return float(value)


def _flag(name: str, value: object) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise InvalidSetting(f"expected {name} as true or false, found {value!r}")
    return value


_OF_KIND: dict[str, Callable[[str, object], object]] = {
    "tuple[str, ...]": _urls,
    "tuple[str, str] | None": _user_info,
    "str | None": _text,
    "bool": _flag,
    "int": _whole,
    "float": _seconds,
    "float | None": _seconds,
}
_READERS = {field.name: _OF_KIND[str(field.type)] for field in fields(RegistrySettings)}
