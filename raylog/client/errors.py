"""Failures of the client itself. Brokers' error codes are `raylog.wire.errors.KafkaError`."""


class ClientError(Exception):
    """A failure of the client, as opposed to an error code from a broker (KafkaError)."""


class NotConnected(ClientError):
    """No connection to a broker; nothing was sent."""


class ConnectionLost(ClientError):
    """The connection ended before the answer. The request may or may not have taken effect."""


class RequestTimedOut(ClientError):
    """No answer in time. The request may or may not have taken effect."""


class NotKafka(ClientError):
    """The peer sent something that no Kafka broker sends."""


class TlsFailed(ClientError):
    """TLS failed: the certificate is not valid, or the listener does not use TLS."""


class AuthenticationFailed(ClientError):
    """SASL failed: the broker violated the mechanism, or could not prove it knows the password."""


class NotSupported(ClientError):
    """The broker does not support a request, or no version of it that the client supports."""


class InvalidSetting(ClientError):
    """A setting or argument with a wrong value; the message says what is expected."""


class DeliveryFailed(ClientError):
    """Records were not acknowledged. The message gives their number and the first reason."""


class BufferExhausted(ClientError):
    """The producer's buffer stayed full for `max.block.ms`."""


class RecordTooLarge(ClientError):
    """A record that is too large to send. Only this record is rejected."""


class WrongTransactionState(ClientError):
    """A transactional call in the wrong order; the message names the call and the state."""


class AbortRequired(ClientError):
    """The open transaction cannot be committed: abort it, then begin another.

    `__cause__` is the reason.
    """


class ProducerUnusable(ClientError):
    """The transactional producer can only be closed; its open transaction will be aborted.

    `__cause__` is the reason: `ProducerFenced` or `InvalidProducerEpoch` if another producer now
    uses its transactional id.
    """


class InvalidTable(ClientError):
    """A table whose columns cannot be converted to records. No row was sent."""
