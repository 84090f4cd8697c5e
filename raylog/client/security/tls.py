"""TLS: contexts from settings, and what its failures mean."""

from __future__ import annotations

import os.path
import ssl

from raylog.client.errors import ClientError, InvalidSetting, NotConnected, TlsFailed
from raylog.client.security.settings import SecuritySettings

_TYPES_ELSEWHERE = (".jks", ".p12", ".pfx")


def context_of(settings: SecuritySettings) -> ssl.SSLContext | None:
    """The context of all connections; None without TLS. Raises InvalidSetting."""
    if not settings.uses_tls:
        return None
    if settings.ssl_context is not None:
        return settings.ssl_context
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if settings.ssl_endpoint_identification_algorithm == "":
        context.check_hostname = False
    _trust(context, settings)
    if settings.ssl_keystore_location is not None:
        _identify(context, settings, settings.ssl_keystore_location)
    if settings.ssl_cipher_suites is not None:
        try:
            context.set_ciphers(settings.ssl_cipher_suites)
        except ssl.SSLError:
            raise InvalidSetting(
                "ssl_cipher_suites: expected OpenSSL's list of ciphers, found "
                f"{settings.ssl_cipher_suites!r}"
            ) from None
    return context


def tls_failure(address: str, host: str, failure: Exception) -> ClientError:
    """What went wrong in a handshake, and what to look at."""
    if isinstance(failure, ssl.SSLCertVerificationError):
        return TlsFailed(
            f"{address}: expected a certificate that is valid, trusted and for {host!r}, found: "
            f"{failure.verify_message}"
        )
    has_ended = isinstance(failure, ssl.SSLEOFError | ssl.SSLZeroReturnError)
    if isinstance(failure, ssl.SSLError) and not has_ended:
        if failure.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"):
            return TlsFailed(
                f"{address}: expected a listener with TLS, found one that answers without: is "
                "security.protocol PLAINTEXT or SASL_PLAINTEXT there?"
            )
        return TlsFailed(f"{address}: no TLS connection: {lost_reason(failure)}")
    return NotConnected(
        f"{address}: expected a TLS handshake, found the connection ended: is the listener one "
        "without TLS (security.protocol PLAINTEXT or SASL_PLAINTEXT)?"
    )


def lost_reason(failure: Exception) -> str:
    """Why a connection ended, in the words of TLS's alerts where it was one."""
    if isinstance(failure, ssl.SSLError) and failure.reason is not None:
        said = failure.reason.replace("_", " ").lower()
        if "certificate required" in said or "bad certificate" in said:
            return f"{said}: the broker wants a certificate of the client's (ssl.keystore.location)"
        return said
    return str(failure) or type(failure).__name__


def _trust(context: ssl.SSLContext, settings: SecuritySettings) -> None:
    """Trust the given certificates alone; the system's are trusted where none are given."""
    location, certificates = settings.ssl_truststore_location, settings.ssl_truststore_certificates
    if location is None and certificates is None:
        context.load_default_certs()
    if location is not None:
        _load_trust(context, location)
    if certificates is not None:
        try:
            context.load_verify_locations(cadata=certificates)
        except ssl.SSLError:
            raise InvalidSetting("ssl_truststore_certificates: expected PEM") from None


def _load_trust(context: ssl.SSLContext, location: str) -> None:
    _existing("ssl_truststore_location", location)
    try:
        if os.path.isdir(location):
            context.load_verify_locations(capath=location)
        else:
            context.load_verify_locations(cafile=location)
    except ssl.SSLError:
        raise InvalidSetting(f"ssl_truststore_location: expected PEM, found {location}") from None


def _identify(context: ssl.SSLContext, settings: SecuritySettings, location: str) -> None:
    """Load the client's own certificate and key."""
    _existing("ssl_keystore_location", location)
    if settings.ssl_key_location is not None:
        _existing("ssl_key_location", settings.ssl_key_location)
    password = settings.ssl_key_password or ""
    try:
        # A callback: without a password OpenSSL would ask on the terminal.
        context.load_cert_chain(location, settings.ssl_key_location, lambda: password)
    except ssl.SSLError as error:
        raise InvalidSetting(
            f"ssl_keystore_location: expected a certificate and its key, found in {location}: "
            f"{(error.reason or 'a wrong ssl_key_password').replace('_', ' ').lower()}"
        ) from None


def _existing(name: str, location: str) -> None:
    """Refuse a file that is not there, or of a kind that OpenSSL does not read."""
    if location.lower().endswith(_TYPES_ELSEWHERE):
        raise InvalidSetting(f"{name}: expected a PEM file, found {location}: convert it to PEM")
    if not os.path.exists(location):
        raise InvalidSetting(f"{name}: expected a file, found none at {location}")
