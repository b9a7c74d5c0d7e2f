"""Protobuf messages read by Google's library, from the schema's text only."""

from __future__ import annotations

import tempfile
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc

_HERE = Path(__file__).parent


@lru_cache(maxsize=32)
def message_class(text: str) -> Any:
    """The class of the first message of a schema, compiled by Google's compiler."""
    with tempfile.TemporaryDirectory() as directory:
        source, target = Path(directory) / "schema.proto", Path(directory) / "schema.bin"
        source.write_text(text, encoding="utf-8")
        google = resources.files("grpc_tools") / "_proto"
        includes = [f"-I{p}" for p in (directory, _HERE, google)]
        status = protoc.main(
            ["protoc", *includes, "--include_imports", f"--descriptor_set_out={target}", str(source)]
        )
        assert status == 0, text
        files = descriptor_pb2.FileDescriptorSet.FromString(target.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    schema = files.file[-1]
    name = f"{schema.package}.{schema.message_type[0].name}".lstrip(".")
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def as_dict(message: Any) -> dict[str, Any]:
    """A message's fields; None for an optional one that is not set, lists unchanged."""
    made = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.is_repeated:
            made[field.name] = [as_dict(v) if field.message_type else v for v in value]
        elif field.has_presence and not message.HasField(field.name):
            made[field.name] = None
        else:
            made[field.name] = as_dict(value) if field.message_type else value
    return made
