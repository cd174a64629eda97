"""Editing of the overrides document: the entries of one service change, and expired entries are removed."""

from collections.abc import Iterable
from typing import Any

import yaml
from msgspec.structs import replace

from webhook.core.document.yaml.manifest_scalars import is_text_for_all
from webhook.core.overrides.entry import Override
from webhook.core.overrides.loading import load

_YAML_WIDTH = 1 << 20


def replace_entries(
    entries: Iterable[Override], service: str, new: Iterable[Override], now_us: int
) -> tuple[Override, ...]:
    """Return the live entries with those of the service replaced by `new`."""
    others = (entry for entry in entries if entry.is_live(now_us) and entry.service != service)
    return (*others, *new)


def drop_replaced(former: Iterable[Override], new: Override) -> tuple[Override, ...]:
    """Return entries without the parts that `new` replaces: states of breaker and queue, resets of the same window."""
    replaces_breaker = new.breaker is not None or new.reset_at is not None
    left = []
    for entry in former:
        reset, newer = entry.quota_reset, new.quota_reset
        is_reset_again = reset is not None and newer is not None and reset.window == newer.window
        kept = replace(entry, quota_reset=None) if is_reset_again else entry
        kept = replace(kept, breaker=None, reset_at=None) if replaces_breaker else kept
        left.append(replace(kept, queue=None) if new.queue is not None else kept)
    return tuple(entry for entry in left if entry.things)


def encode_document(entries: Iterable[Override]) -> bytes:
    """Return the document with these entries."""
    return _dump([entry.encode_plain() for entry in entries])


def parse_entry(plain: dict[str, Any]) -> Override:
    """Return the entry with these fields. DocumentError: all problems, with paths from `[0]`."""
    [entry] = load(_dump([plain])).entries
    return entry


class _Dumper(yaml.SafeDumper):
    """YAML dumper that also quotes strings which PyYAML alone reads as such, for example 1e3."""


def _represent_string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, None if is_text_for_all(text) else "'")


_Dumper.add_representer(str, _represent_string)


def _dump(plain: list[dict[str, Any]]) -> bytes:
    text: str = yaml.dump(
        plain, Dumper=_Dumper, sort_keys=False, default_flow_style=None, allow_unicode=True, width=_YAML_WIDTH
    )
    return text.encode()
