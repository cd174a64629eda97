"""Messages of protobuf, which the library of CEL knows types by: made of a table of fields."""

from collections.abc import Mapping
from typing import Any

from webhook.core.pod_rules.fields import Fields

_SCALARS = {"string": 9, "int": 3, "bool": 8, "bytes": 12}
_MESSAGE, _SINGLE, _REPEATED = 11, 1, 3


def build_messages(package: str, table: Mapping[str, Fields]) -> Any:
    """Return a pool of descriptors with the messages of the table. ImportError: protobuf is not installed."""
    from google.protobuf import descriptor_pb2, descriptor_pool  # noqa: PLC0415  comes with the optional library

    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in table.items():
        message = file.message_type.add(name=name)
        for place, (field, declared) in enumerate(fields.items(), 1):
            number, kind = (place, declared) if isinstance(declared, str) else declared
            _add_field(message, field, number, kind, f".{package}")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool


def find_message_class(pool: Any, name: str) -> Any:
    """Return the class of a message of a pool."""
    from google.protobuf import message_factory  # noqa: PLC0415  comes with the optional library

    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def _add_field(message: Any, name: str, number: int, kind: str, scope: str) -> None:
    if kind.startswith("{"):
        entry = message.nested_type.add(name=f"{name[0].upper()}{name[1:]}Entry")
        entry.options.map_entry = True
        _add_field(entry, "key", 1, "string", scope)
        _add_field(entry, "value", 2, kind.strip("{}"), scope)
        of_map = f"{scope}.{message.name}.{entry.name}"
        message.field.add(name=name, number=number, type=_MESSAGE, type_name=of_map, label=_REPEATED)
        return
    plain = kind.strip("[]?")
    field = message.field.add(name=name, number=number, label=_REPEATED if kind.startswith("[") else _SINGLE)
    field.type = _SCALARS.get(plain, _MESSAGE)
    if plain not in _SCALARS:
        field.type_name = f"{scope}.{plain}"
    if kind.endswith("?"):
        field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")
