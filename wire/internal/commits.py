"""Decodes committed offsets to bare tuples, for a coordinator that loads millions of them.

This is five times as fast as `decode_record`, with the same result. Commits outside of transactions
are independent, and only the latest of a key counts, so decode no more than that:

    latest: dict[bytes, bytes | None] = {}
    for header, records in bulk.batches(data):
        for _, key, value, _ in records:
            if is_commit_key(key):
                latest[key] = value
            else:
                ...  # decode_record(OFFSETS_TOPIC, key, value)
    for key, value in latest.items():
        group, topic, partition = decode_commit_key(key)
        fields = None if value is None else decode_commit_value(value)

`offsets.py` has the versions and layouts, and decodes the less common forms.
"""

import struct
from typing import TypeGuard

from raylog.wire.errors import DecodeError
from raylog.wire.internal.blobs import OFFSETS_TOPIC, decode_record
from raylog.wire.internal.offsets import OffsetCommitValue
from raylog.wire.uuids import ZERO_UUID

CommitKey = tuple[str, str, int]
"""Group, topic, partition."""

CommitFields = tuple[int, int, str, int, int, bytes]
"""Offset, leader epoch, metadata, commit and expire timestamp (ms, -1: none), topic id."""

NO_EXPIRY = -1

_KEYS = (b"\0\0", b"\0\1")  # the oldest kind is read, not written
_PREFIX = struct.Struct(">hh")  # kind of key, length of the group
_LENGTH = struct.Struct(">h")
_PARTITION = struct.Struct(">i")
_SAMPLE_KEY = b"\0\1\0\0\0\0\0\0\0\0"
_HEAD = struct.Struct(">hqi")  # version, offset, leader epoch
_TIMESTAMP = struct.Struct(">q")
_V3 = 3  # without a topic id
_METADATA_V3 = _HEAD.size + 2
_V4 = 4  # with a topic id
_METADATA_V4 = _HEAD.size + 1  # if its length plus one takes one byte
_ONE_BYTE = 0x80
_NO_TAGS = b"\x00"
_TOPIC_ID = b"\x01\x00\x10"  # one tagged field, number 0, of 16 bytes
_WITH_TOPIC_ID = len(_TOPIC_ID) + len(ZERO_UUID)
_USUAL = struct.Struct(">hqibq3s16s")  # version 4 with a topic id and without metadata
_NO_METADATA = 1


def is_commit_key(key: bytes | None) -> TypeGuard[bytes]:
    """Whether a key of `__consumer_offsets` belongs to a committed offset."""
    return key is not None and key[:2] in _KEYS


def decode_commit_key(key: bytes) -> CommitKey:
    """Decode a commit's key. Raises DecodeError if it is malformed."""
    try:
        _, group_size = _PREFIX.unpack_from(key)
        topic_at = 4 + group_size
        (topic_size,) = _LENGTH.unpack_from(key, topic_at)
        (partition,) = _PARTITION.unpack_from(key, len(key) - 4)
        if group_size >= 0 and topic_size >= 0 and topic_at + 6 + topic_size == len(key):
            return key[4:topic_at].decode(), key[topic_at + 2 : -4].decode(), partition
    except (struct.error, UnicodeDecodeError) as error:
        raise DecodeError(f"key of a committed offset: {error}") from error
    raise DecodeError(f"key of a committed offset: lengths {group_size} and {topic_size}")


def decode_commit_value(value: bytes) -> CommitFields:
    """Decode a commit's value. Raises DecodeError if it is malformed or has an unknown version."""
    if len(value) == _USUAL.size:
        version, offset, epoch, metadata_size, timestamp, tag, topic_id = _USUAL.unpack(value)
        if version == _V4 and metadata_size == _NO_METADATA and tag == _TOPIC_ID:
            return offset, epoch, "", timestamp, NO_EXPIRY, topic_id
    try:
        version, offset, epoch = _HEAD.unpack_from(value)
        if version == _V3:
            (size,) = _LENGTH.unpack_from(value, _HEAD.size)
            end = _METADATA_V3 + size
            if size >= 0 and end + _TIMESTAMP.size == len(value):
                (timestamp,) = _TIMESTAMP.unpack_from(value, end)
                metadata = value[_METADATA_V3:end].decode() if size else ""
                return offset, epoch, metadata, timestamp, NO_EXPIRY, ZERO_UUID
        elif version == _V4 and 0 < value[_HEAD.size] < _ONE_BYTE:
            end = _METADATA_V4 + value[_HEAD.size] - 1
            (timestamp,) = _TIMESTAMP.unpack_from(value, end)
            tail = value[end + _TIMESTAMP.size :]
            metadata = value[_METADATA_V4:end].decode() if end > _METADATA_V4 else ""
            if len(tail) == _WITH_TOPIC_ID and tail.startswith(_TOPIC_ID):
                return offset, epoch, metadata, timestamp, NO_EXPIRY, tail[len(_TOPIC_ID) :]
            if tail == _NO_TAGS:
                return offset, epoch, metadata, timestamp, NO_EXPIRY, ZERO_UUID
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise DecodeError(f"value of a committed offset: {error}") from error
    return _decode_uncommon(value)


def _decode_uncommon(value: bytes) -> CommitFields:
    found = decode_record(OFFSETS_TOPIC, _SAMPLE_KEY, value)
    commit = None if found is None else found[1]
    assert isinstance(commit, OffsetCommitValue), "the sample key asks for this kind"
    return (
        commit.offset,
        commit.leader_epoch,
        commit.metadata,
        commit.commit_timestamp,
        commit.expire_timestamp,
        commit.topic_id,
    )
