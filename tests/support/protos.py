"""Protobuf messages for tests, compiled on first use."""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import descriptor_pool
from google.protobuf.message_factory import GetMessageClass

from raylog.client.schemas.protobuf_files import compiled

FILES = {
    "money/money.proto": """
syntax = "proto3";
package money;
message Currency { string code = 1; }
message Money { int64 units = 1; Currency currency = 2; }
""",
    "orders.proto": """
syntax = "proto3";
package shop;
import "money/money.proto";
import "google/protobuf/timestamp.proto";
message Order {
  string id = 1;
  money.Money price = 2;
  google.protobuf.Timestamp placed = 3;
  map<string, int32> items = 4;
}
message Basket {
  message Line { string item = 1; int32 count = 2; }
  message Note {
    message Author { string name = 1; }
    string text = 1;
    Author author = 2;
  }
  repeated Line lines = 1;
}
""",
}


@cache
def message(name: str) -> Any:
    """Return the class of a message in FILES."""
    return GetMessageClass(_pool().FindMessageTypeByName(name))


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    from google.protobuf import timestamp_pb2

    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    files = compiled(FILES, {})
    for name in FILES:
        pool.AddSerializedFile(files[name].SerializeToString())
    return pool
