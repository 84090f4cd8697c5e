"""KIP-848 groups as a machine: the broker assigns, members follow in their heartbeats."""

from raylog.actors.group.consumer.group import ConsumerGroup as ConsumerGroup
from raylog.actors.group.consumer.state import RECORD_KEYS as RECORD_KEYS
