"""Settings and errors of librdkafka that test clients share."""

from confluent_kafka import KafkaError

QUICK = {
    "reconnect.backoff.ms": "50",
    "reconnect.backoff.max.ms": "250",
    "retry.backoff.ms": "50",
    "retry.backoff.max.ms": "250",
    "topic.metadata.refresh.fast.interval.ms": "50",
    "log_level": "0",
}
"""Look for a lost broker more often than is usual, so that we measure the broker."""
PASSING = (
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._RESOLVE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
)
"""Errors that librdkafka reports and then recovers from by itself."""
