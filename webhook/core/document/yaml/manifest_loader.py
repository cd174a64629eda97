"""YAML documents as the JSON values that kubectl sends: go-yaml v2 reads them, and sigs.k8s.io/yaml converts them.

go-yaml is a translation of libyaml, whose parser reads them here, too: PyYAML's own refuses tabs that both take.
"""

import re
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import yaml

from webhook.core.document.yaml.manifest_scalars import JsonScalar, convert_to_json, format_key, resolve_as_kubectl
from webhook.core.plain_text import quote_value

_PREFIX = "tag:yaml.org,2002:"
_MERGE, _STRING = f"{_PREFIX}merge", f"{_PREFIX}str"
_TYPES: dict[type, str] = {type(None): "null", bool: "bool", int: "int", float: "float", str: "str"}
_TAGS = {"null": (type(None),), "bool": (bool,), "int": (int,), "float": (float, int)}
_LIBYAML: Any = getattr(yaml, "CSafeLoader", None)  # some builds of PyYAML lack libyaml
_TEXT_TAG = re.compile(r"(?:&\S+\s+)?!")
"""The tag `!`, after an anchor or none: libyaml leaves it out of the events of scalars."""


class ManifestLoader(yaml.SafeLoader):
    """Loader that refuses what kubectl refuses, and duplicate keys, of which kubectl uses the last.

    As kubectl it ignores the tags of mappings and lists, and those of an application.
    """

    def __init__(self, text: str) -> None:
        # kubectl ends the last line, and skips a byte order mark where a line begins, as after ---.
        self._text = (text if text.endswith("\n") else f"{text}\n").replace("\n\ufeff", "\n")
        super().__init__(self._text)  # refuses what is not printable: libyaml would count bytes up to it
        # libyaml refuses a byte order mark in a value, as of a file in a ConfigMap.
        if _LIBYAML is not None and "\ufeff" not in self._text:
            events = _LIBYAML(self._text)
            vars(self).update({name: getattr(events, name) for name in ("check_event", "peek_event", "get_event")})

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        if kind is not yaml.ScalarNode or not implicit[0]:
            return _STRING
        return _MERGE if value == "<<" else _PREFIX + _TYPES[type(resolve_as_kubectl(value))]

    def compose_scalar_node(self, anchor: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]  # the stubs have no types here
        node = super().compose_scalar_node(anchor)
        if event.tag == "!" or (event.tag is None and _TEXT_TAG.match(self._text, event.start_mark.index)):
            node.tag = _STRING
        return node

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        seen = set[str]()
        for key, _ in node.value:
            name = self._build_key(key)
            if name in seen:
                raise YamlDuplicateKeyError(
                    problem=f"the key {quote_value(name)} is duplicated", problem_mark=key.start_mark
                )
            seen.add(name)
        return node

    def flatten_mapping(self, node: Any) -> None:
        """Put the fields of merged mappings where `<<` stands; of two equal fields kubectl uses the last."""
        if all(key.tag != _MERGE for key, _ in node.value):
            return
        fields = dict[str, Any]()
        for key, value in node.value:
            if key.tag != _MERGE:
                fields[self._build_key(key)] = key, value
                continue
            for merged in reversed(value.value) if isinstance(value, yaml.SequenceNode) else [value]:
                if not isinstance(merged, yaml.MappingNode):
                    raise _build_error("expected a mapping or list of mappings for merging", merged)
                self.flatten_mapping(merged)
                fields.update((self._build_key(inner), (inner, field)) for inner, field in merged.value)
        node.value = list(fields.values())

    def _build_key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise _build_error("found unhashable key", node)
        if node.tag == _STRING:  # most are
            return str(node.value)
        try:
            return format_key(_build_scalar(node))
        except ValueError:
            raise _build_error("found unhashable key", node) from None

    def construct_any(self, node: Any) -> Any:
        """Return the JSON value of a node with any tag."""
        if isinstance(node, yaml.MappingNode):
            return self._construct_fields(node)
        if isinstance(node, yaml.SequenceNode):
            return self.construct_yaml_seq(node)
        try:
            return convert_to_json(_build_scalar(node))
        except ValueError as error:
            raise _build_error(str(error), node) from None

    def _construct_fields(self, node: yaml.MappingNode) -> Iterator[dict[str, Any]]:
        fields = dict[str, Any]()
        yield fields  # an alias inside may refer to it
        self.flatten_mapping(node)
        fields.update((self._build_key(key), self.construct_object(value)) for key, value in node.value)


ManifestLoader.yaml_constructors = {None: ManifestLoader.construct_any}


class YamlDuplicateKeyError(yaml.MarkedYAMLError):
    """A duplicate key in a YAML mapping."""


def _build_scalar(node: yaml.ScalarNode) -> JsonScalar:
    """Return the value of a scalar with its tag. ValueError: it has no value of that type."""
    text, tag = str(node.value), node.tag.removeprefix(_PREFIX)
    if tag == "binary":
        return b64decode("".join(text.split()), validate=True).decode(errors="replace")
    if tag not in _TAGS:
        return text
    value = resolve_as_kubectl(text)
    if type(value) not in _TAGS[tag]:
        raise ValueError(f"{quote_value(text)} is not of the type {tag}")
    return float(value) if tag == "float" and value is not None else value


def _build_error(problem: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
