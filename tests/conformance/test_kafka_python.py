"""kafka-python against a broker."""

from tests.conformance.clients.kafka_python import KafkaPythonClient
from tests.conformance.suite import ClientSuite


class TestKafkaPython(ClientSuite):
    """Every scenario with kafka-python."""

    client = KafkaPythonClient()
