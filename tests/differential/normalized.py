"""Answers in a form that can be compared between brokers.

Fields with default values, throttle times, texts for people and addresses are left out. Ids of
members and producers are numbered in order of appearance, topic ids become names, and lists are
sorted, because Apache Kafka lists members in hash table order.
"""

from __future__ import annotations

import dataclasses
import json
import re
import zlib
from typing import Any

from raylog.wire.errors import DecodeError, EncodeError, ErrorCode
from raylog.wire.internal.blobs import decode_blob, encode_value
from raylog.wire.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from raylog.wire.messages.list_groups import ListGroupsResponse
from raylog.wire.messages.list_transactions import ListTransactionsResponse
from raylog.wire.schema import layout_of

Plain = Any
"""Strings, numbers, lists and dictionaries."""
VAGUE = {"throttle_time_ms", "error_message", "host", "port"}
LONG = 250
"""Texts that are longer are not kept in full."""
_MEMBER_FIELDS = {"member_id", "leader"}
_PRODUCER_FIELDS = {"producer_id", "ongoing_txn_producer_id"}
_UUID = re.compile(r"(?P<before>.*?)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SHORT_UUID = re.compile(r"[A-Za-z0-9_-]{22}")
_NO_TOPIC = bytes(16)


class Names:
    """The names for the ids of one session."""

    def __init__(self, session: str) -> None:
        self.topic_ids: dict[str, bytes] = {}
        self._session = session
        self._topics: dict[bytes, str] = {_NO_TOPIC: ""}
        self._members: dict[str, str] = {"": ""}
        self._producers: dict[int, str] = {}

    def learn_topic(self, name: str, topic_id: bytes) -> None:
        """Tell a topic's id."""
        self.topic_ids[name] = topic_id
        self._topics[topic_id] = name

    def learn_spoken(self, request: Any) -> None:
        """Member ids that the script made up stay as they are."""
        for item in [request, *getattr(request, "members", [])]:
            member_id = getattr(item, "member_id", None)
            if isinstance(member_id, str):
                self._members.setdefault(member_id, member_id)

    def plain(self, answer: Any) -> Plain:
        """An answer as plain values."""
        if isinstance(answer, str):
            return answer
        found = self._struct(answer)
        if isinstance(answer, ListGroupsResponse):
            ours = [g for g in found.get("groups", []) if self._is_ours(g.get("group_id", ""))]
            found["groups"] = ours
        if isinstance(answer, ListTransactionsResponse):
            listed = found.get("transaction_states", [])
            ours = [one for one in listed if self._is_ours(one["transactional_id"])]
            found["transaction_states"] = ours
        return found

    def _is_ours(self, group_id: str) -> bool:
        return group_id.startswith(f"{self._session}.")

    def _struct(self, value: Any) -> dict[str, Plain]:
        found = {}
        for field in layout_of(type(value)).fields:
            item = getattr(value, field.name)
            is_set = item != field.default or field.name == "producer_id"  # 0 is one like others
            if field.name not in VAGUE and is_set:
                found[field.name] = self._field(field.name, item)
        return found

    def _field(self, name: str, value: Any) -> Plain:
        if name in _MEMBER_FIELDS and isinstance(value, str):
            return self._member(value)
        if name.endswith("error_code"):
            return error_name(value)
        if name in _PRODUCER_FIELDS and value >= 0:
            return self._producers.setdefault(value, f"p{len(self._producers)}")
        if name == "transaction_start_time_ms" and value > 0:
            return "a time"
        if name == "topic_id":
            return self._topics.get(value, "another topic")
        if isinstance(value, list):
            ordered = sorted(value, key=lambda item: self._order(item))
            return [self._field("", item) for item in ordered]
        if isinstance(value, bytes | bytearray | memoryview):
            return self._bytes(bytes(value))
        if isinstance(value, str):
            return _brief(value)
        return self._struct(value) if dataclasses.is_dataclass(value) else value

    def _order(self, item: Any) -> Any:
        """Orders items of a list by all but the ids of members not known yet."""
        if isinstance(item, int):
            return item
        known = dict(self._members)
        text = json.dumps(self._field("", item), sort_keys=True)
        new = [name for member, name in self._members.items() if member not in known]
        for name in new:
            text = text.replace(f'"{name}"', '"?"')
        self._members = known
        return text

    def _member(self, member_id: str) -> str:
        if member_id not in self._members:
            self._members[member_id] = f"m{len(self._members)}{_form(member_id)}"
        return self._members[member_id]

    def _bytes(self, value: bytes) -> Plain:
        """What consumers send one another as its fields, other bytes as text."""
        for kind in (ConsumerProtocolAssignment, ConsumerProtocolSubscription):
            try:
                blob = decode_blob(kind, value)
                if encode_value(blob, value[1]) == value:
                    return {"version": value[1], **self._struct(blob)}
            except (DecodeError, EncodeError, IndexError):
                continue  # it is something else
        return _brief(repr(value)[2:-1])


def _brief(text: str) -> str:
    """A long text by its beginning, length and checksum."""
    if len(text) <= LONG:
        return text
    return f"{text[:8]}… {len(text)} {zlib.crc32(text.encode()):x}"


def error_name(code: int) -> str:
    """Kafka's name of an error code."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def _form(member_id: str) -> str:
    """How an id that a broker made is written."""
    if whole := _UUID.fullmatch(member_id):
        return f" {whole['before']}uuid"
    return " short" if _SHORT_UUID.fullmatch(member_id) else " odd"


def differences(kafka: Plain, raylog: Plain, path: str = "") -> list[str]:
    """Where two plain values differ, as "path: Apache Kafka's value, Raylog's value"."""
    if isinstance(kafka, dict) and isinstance(raylog, dict):
        keys = sorted(kafka.keys() | raylog.keys())
        absent = "the default"
        return [
            line
            for key in keys
            for line in differences(
                kafka.get(key, absent), raylog.get(key, absent), f"{path}.{key}"
            )
        ]
    if isinstance(kafka, list) and isinstance(raylog, list) and len(kafka) == len(raylog):
        return [
            line
            for index, (theirs, ours) in enumerate(zip(kafka, raylog, strict=True))
            for line in differences(theirs, ours, f"{path}[{index}]")
        ]
    return [] if kafka == raylog else [f"{path}: {kafka!r}, {raylog!r}"]
