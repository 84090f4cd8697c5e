"""The byte containers that decoders read from."""

from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
