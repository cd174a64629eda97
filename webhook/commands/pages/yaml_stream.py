"""YAML streams of several documents, for readers."""

from typing import Any

import yaml


class _Dumper(yaml.SafeDumper):
    """YAML for readers: expressions as blocks, without doubled quotes, and no aliases."""

    def ignore_aliases(self, _data: object) -> bool:
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "'" in data else None)


_Dumper.add_representer(str, _Dumper.represent_str)


def format_yaml_stream(documents: tuple[dict[str, Any], ...]) -> str:
    """Return the documents as a YAML stream; no line is folded."""
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, explicit_start=True, width=float("inf"))
