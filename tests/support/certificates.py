"""Certificates for tests, made by openssl on demand."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
KEY_PASSWORD = "key password"


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority."""

    directory: Path
    name: str

    @property
    def certificate(self) -> Path:
        """The authority's own certificate, which clients trust."""
        return self.directory / f"{self.name}.pem"

    def issue(
        self, name: str, hosts: str = "DNS:localhost,IP:127.0.0.1", days: int = 2
    ) -> tuple[Path, Path]:
        """Return a certificate and its key; negative `days` make it expired."""
        certificate, key = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        request, extensions = self.directory / f"{name}.csr", self.directory / f"{name}.ext"
        extensions.write_text(f"subjectAltName={hosts}\n")
        _openssl(
            "req", "-new", *_KEY, "-nodes", "-keyout", key, "-out", request, "-subj", f"/CN={name}"
        )
        _openssl(
            *("x509", "-req", "-in", request, "-CA", self.certificate),
            *("-CAkey", self.directory / f"{self.name}.key", "-CAcreateserial"),
            *("-out", certificate, "-days", days, "-extfile", extensions),
        )
        return certificate, key


def authority(directory: Path, name: str = "authority") -> Authority:
    """Return a new authority; skip the test if openssl is not installed."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    one = Authority(directory, name)
    _openssl(
        *("req", "-x509", *_KEY, "-nodes", "-keyout", directory / f"{name}.key"),
        *("-out", one.certificate, "-days", 2, "-subj", f"/CN={name}"),
    )
    return one


def encrypted_key(key: Path) -> Path:
    """Return a copy of a key, encrypted with KEY_PASSWORD."""
    path = key.with_suffix(".encrypted.key")
    _openssl("pkcs8", "-topk8", "-in", key, "-out", path, "-passout", f"pass:{KEY_PASSWORD}")
    return path


def server_context(pair: tuple[Path, Path], trusted: Path | None = None) -> ssl.SSLContext:
    """Return a broker's TLS context; with `trusted` it requires client certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    if trusted is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(trusted)
    return context


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)
