"""librdkafka against a broker."""

from tests.conformance.clients.confluent import ConfluentClient
from tests.conformance.suite import ClientSuite


class TestConfluent(ClientSuite):
    """Every scenario with confluent-kafka."""

    client = ConfluentClient()
