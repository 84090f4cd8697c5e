"""Failures of the client itself. Error codes of brokers are `raylog.wire.errors.KafkaError`."""


class ClientError(Exception):
    """A failure of the client, as opposed to an error code from a broker (KafkaError)."""


class NotConnected(ClientError):
    """No connection to a broker; nothing was sent."""


class ConnectionLost(ClientError):
    """The connection ended before the answer. It is unknown whether the request took effect."""


class RequestTimedOut(ClientError):
    """No answer in time. It is unknown whether the request took effect."""


class NotKafka(ClientError):
    """The other side sent something that a Kafka broker does not send."""


class TlsFailed(ClientError):
    """TLS failed: the certificate is not valid, or the listener does not use TLS."""


class AuthenticationFailed(ClientError):
    """SASL failed: the broker broke the rules of the mechanism, or does not know the password."""


class NotSupported(ClientError):
    """The broker does not support a request, or no version of it that the client supports."""


class InvalidSetting(ClientError):
    """A setting or argument with a wrong value; the message says what is expected."""


class DeliveryFailed(ClientError):
    """Records were not acknowledged. The message says how many, and the first reason."""


class BufferExhausted(ClientError):
    """The producer's buffer stayed full for `max.block.ms`."""


class RecordTooLarge(ClientError):
    """A record that is too large to be sent. It was rejected; other records are not affected."""


class WrongTransactionState(ClientError):
    """A transactional call in the wrong order; the message names the call and the state."""


class AbortRequired(ClientError):
    """The open transaction cannot be committed: abort it, then begin another.

    `__cause__` is the reason.
    """


class ProducerUnusable(ClientError):
    """The transactional producer can only be closed; its open transaction will be aborted.

    `__cause__` is the reason: `ProducerFenced` or `InvalidProducerEpoch` if another producer uses
    its transactional id now.
    """


class InvalidTable(ClientError):
    """A table whose columns cannot be converted to records. Nothing of it was sent."""
