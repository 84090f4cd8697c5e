"""The interceptor `mask`: hides fields of JSON values from everybody who reads the topic.

| option    | meaning                                                                          |
|-----------|----------------------------------------------------------------------------------|
| `fields`  | names of the fields, separated by commas, at whatever depth                      |
| `with`    | what readers see instead; default `***`                                          |
| `at.rest` | `true`: masked before it is stored, and so for ever; default: only when it is read |
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from raylog.actors.interceptors.api import Interceptor, Record


class Mask(Interceptor):
    """Masks fields. What is no JSON is hidden as a whole: who knows what it says."""

    name = "mask"

    def __init__(self) -> None:
        self._fields: frozenset[str] = frozenset()
        self._mask = "***"
        self._at_rest = False

    def configure(self, options: Mapping[str, str]) -> None:
        """Take the options; ValueError refuses them, and the client that sets them is told."""
        fields = options.get("fields", "").split(",")
        self._fields = frozenset(field.strip() for field in fields if field.strip())
        if not self._fields:
            raise ValueError("which fields? Set fields=name,name")
        self._mask = options.get("with", self._mask)
        self._at_rest = options.get("at.rest", "false") == "true"

    def on_produce(self, topic: str, records: Sequence[Record]) -> Iterable[Record]:
        """Mask what is stored, if that is wanted."""
        return [self._masked(record) for record in records] if self._at_rest else records

    def on_fetch(self, topic: str, records: Sequence[Record]) -> Iterable[Record]:
        """Mask what is read, unless it is stored masked."""
        return records if self._at_rest else [self._masked(record) for record in records]

    def _masked(self, record: Record) -> Record:
        if record.value is None:
            return record
        try:
            document = json.loads(record.value)
        except ValueError:
            return record._replace(value=self._mask.encode())
        if not self._hide(document):
            return record  # the very same: the batch need not be written anew for it
        return record._replace(value=json.dumps(document).encode())

    def _hide(self, document: Any) -> bool:
        """Mask the fields in a document; whether there were any."""
        found = False
        match document:
            case dict():
                for name, value in document.items():
                    if name in self._fields:
                        document[name] = self._mask
                        found = True
                    else:
                        found |= self._hide(value)
            case list():
                for value in document:
                    found |= self._hide(value)
        return found
