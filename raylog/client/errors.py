"""Failures of the client itself; what a broker answers comes as `raylog.wire.errors.KafkaError`."""


class ClientError(Exception):
    """Something outside the protocol's own error codes went wrong."""


class NotConnected(ClientError):
    """A broker could not be reached; nothing was sent to it."""


class ConnectionLost(ClientError):
    """The connection ended before the answer came; whether the request took effect is unknown."""


class RequestTimedOut(ClientError):
    """No answer within the request's time; whether it took effect is unknown."""


class NotKafka(ClientError):
    """The other side sent what no Kafka broker sends."""


class TlsFailed(ClientError):
    """No TLS connection: a certificate that is not valid, or a listener without TLS."""


class AuthenticationFailed(ClientError):
    """No login: the broker did not keep to the mechanism, or does not know the password."""


class NotSupported(ClientError):
    """Broker and client have no version of a request in common."""


class InvalidSetting(ClientError):
    """A setting of the client that makes no sense; the message names what would."""


class DeliveryFailed(ClientError):
    """Records were not acknowledged; the message counts them and gives the first reason."""


class BufferExhausted(ClientError):
    """The producer's buffer stayed full for as long as a caller may be held."""


class RecordTooLarge(ClientError):
    """A record that no request may hold; it was not taken, all others are as they were."""


class WrongTransactionState(ClientError):
    """A transactional call out of turn; the message says which, and where the producer stands."""


class AbortRequired(ClientError):
    """The open transaction cannot be committed: abort it, then begin another.

    `__cause__` is what made it so.
    """


class ProducerUnusable(ClientError):
    """The transactional producer can only be closed; what it has open will be aborted.

    `__cause__` says why: `ProducerFenced` or `InvalidProducerEpoch` if another producer has its
    transactional id now.
    """


class InvalidTable(ClientError):
    """A table whose columns cannot become records; nothing of it was sent."""
