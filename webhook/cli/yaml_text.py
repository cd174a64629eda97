"""Objects as the YAML that a person would write."""

from typing import Any

import yaml


class _Dumper(yaml.SafeDumper):
    """YAML as a person would write it: no anchors, no folded lines, scripts line by line."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


_UNSEEN = frozenset("\x85\u2028\u2029\ufeff")  # line breaks to YAML, and to nobody else


def _string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text.rstrip("\n") else None
    if not _UNSEEN.isdisjoint(text):
        style = '"'  # which escapes them
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _string)
_WIDEST = 1 << 20


def as_yaml(document: dict[str, Any]) -> str:
    return yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True, width=_WIDEST
    )


def as_flow(document: dict[str, Any]) -> str:
    """Return a small object on one line."""
    text: str = yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, default_flow_style=True, allow_unicode=True, width=_WIDEST
    )
    return text.strip()
