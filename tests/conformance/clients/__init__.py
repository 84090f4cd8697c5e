"""The client libraries under test."""

from tests.conformance.clients.aio import AiokafkaClient
from tests.conformance.clients.base import ClientAdapter
from tests.conformance.clients.confluent import ConfluentClient
from tests.conformance.clients.kafka_python import KafkaPythonClient

CLIENTS: tuple[ClientAdapter, ...] = (ConfluentClient(), KafkaPythonClient(), AiokafkaClient())
