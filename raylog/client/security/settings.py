"""What TLS and SASL are set to, checked before the first connection."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from raylog.client.errors import InvalidSetting
from raylog.client.values import Values

if TYPE_CHECKING:
    import ssl

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SecuritySettings(Values):
    """How connections are encrypted, and as whom the client logs in."""

    protocol: str = "PLAINTEXT"
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
    ssl_context: ssl.SSLContext | None = None
    """A context made by the program; it takes the place of all other ssl settings."""
    ssl_truststore_location: str | None = None
    """PEM file or directory of certificates to trust; the system's where neither is given."""
    ssl_truststore_certificates: str | None = None
    """The certificates to trust themselves, as PEM."""
    ssl_keystore_location: str | None = None
    """PEM file of the client's certificate chain, and of its key unless that has its own file."""
    ssl_key_location: str | None = None
    """PEM file of the client's key."""
    ssl_key_password: str | None = field(default=None, repr=False)
    """Of an encrypted key."""
    ssl_endpoint_identification_algorithm: str = "https"
    """"https": the certificate must name the broker's host; "": any host will do."""
    ssl_cipher_suites: str | None = None
    """OpenSSL's list of ciphers up to TLS 1.2."""
    sasl_mechanism: str | None = None
    """PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512."""
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise InvalidSetting(
                f"expected security_protocol {', '.join(PROTOCOLS)}, found {self.protocol!r}"
            )
        if self.ssl_endpoint_identification_algorithm not in ("https", ""):
            raise InvalidSetting(
                "expected ssl_endpoint_identification_algorithm 'https' or '' (any host), found "
                f"{self.ssl_endpoint_identification_algorithm!r}"
            )
        self._check_tls()
        self._check_sasl()

    @property
    def uses_tls(self) -> bool:
        """Whether bytes are encrypted."""
        return self.protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether the client logs in."""
        return self.protocol.startswith("SASL_")

    def _check_tls(self) -> None:
        files = {
            "ssl_truststore_location": self.ssl_truststore_location,
            "ssl_truststore_certificates": self.ssl_truststore_certificates,
            "ssl_keystore_location": self.ssl_keystore_location,
            "ssl_key_location": self.ssl_key_location,
            "ssl_key_password": self.ssl_key_password,
            "ssl_cipher_suites": self.ssl_cipher_suites,
        }
        given = [name for name, value in files.items() if value is not None]
        if self.ssl_context is not None and given:
            raise InvalidSetting(f"ssl_context takes the place of {given[0]}: found both")
        if (given or self.ssl_context is not None) and not self.uses_tls:
            name = given[0] if given else "ssl_context"
            raise InvalidSetting(
                f"{name} needs security_protocol SSL or SASL_SSL, found {self.protocol}"
            )
        if self.ssl_keystore_location is None:
            for name in ("ssl_key_location", "ssl_key_password"):
                if name in given:
                    raise InvalidSetting(f"{name} needs ssl_keystore_location, found none")

    def _check_sasl(self) -> None:
        login = (self.sasl_mechanism, self.sasl_username, self.sasl_password)
        if not self.uses_sasl:
            if any(part is not None for part in login):
                raise InvalidSetting(
                    "sasl_mechanism, sasl_username and sasl_password need security_protocol "
                    f"SASL_SSL or SASL_PLAINTEXT, found {self.protocol}"
                )
            return
        if self.sasl_mechanism not in MECHANISMS:
            raise InvalidSetting(
                f"expected sasl_mechanism {', '.join(MECHANISMS)}, found {self.sasl_mechanism!r}"
            )
        for name, value in (("sasl_username", login[1]), ("sasl_password", login[2])):
            if not value:
                raise InvalidSetting(f"{self.sasl_mechanism} needs {name}, found none")
            if "\0" in value:
                raise InvalidSetting(f"expected {name} without a zero character")
