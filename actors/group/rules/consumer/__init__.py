"""KIP-848 groups as a machine: the broker assigns, and members catch up by their heartbeats."""

from raylog.actors.group.rules.consumer.group import ConsumerGroup as ConsumerGroup
from raylog.actors.group.rules.consumer.state import RECORD_KEYS as RECORD_KEYS
