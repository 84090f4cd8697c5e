"""aiokafka against a broker."""

from tests.conformance.clients.aio import AiokafkaClient
from tests.conformance.suite import ClientSuite


class TestAiokafka(ClientSuite):
    """Every scenario with aiokafka."""

    client = AiokafkaClient()
