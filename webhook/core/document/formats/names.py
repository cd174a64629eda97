"""Formats of names: DNS names, label keys and values, patterns of names, and reasons."""

import re

from webhook.core.document.formats.errors import must

NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUFFIX = re.compile(r"\*[-a-z0-9]{0,61}[a-z0-9]")
_PREFIX = re.compile(r"[a-z0-9][-a-z0-9]{0,61}\*")
_SUBDOMAIN_LENGTH = 253


def is_subdomain(text: str) -> bool:
    return len(text) <= _SUBDOMAIN_LENGTH and all(_LABEL.fullmatch(part) for part in text.split("."))


def dns_label(text: str) -> None:
    must(
        _LABEL.fullmatch(text),
        "not a DNS-1123 label",
        "use at most 63 of a-z, 0-9 and -, with a letter or digit at both ends",
    )


def dns_subdomain(text: str) -> None:
    must(is_subdomain(text), "not a DNS-1123 name", "use a-z, 0-9, - and ., with a letter or digit at both ends")


def label_key(text: str) -> None:
    prefix, slash, name = text.rpartition("/")
    remedy = "write NAME or DOMAIN/NAME, such as disk-type or example.com/disk-type"
    must(NAME.fullmatch(name), "not a label key", remedy)
    must(not slash or is_subdomain(prefix), "not a label key: its prefix is not a DNS name", remedy)


def label_key_or_empty(text: str) -> None:
    if text:
        label_key(text)


def label_value(text: str) -> None:
    remedy = "use at most 63 of A-Z, a-z, 0-9, -, _ and ., with a letter or digit at both ends"
    must(not text or NAME.fullmatch(text), "not a label value", remedy)


def namespace_pattern(text: str) -> None:
    must(text != "*", "* alone matches every namespace", "name them, or write `anyNamespace: true` in `match` instead")
    remedy = "write a namespace's name, or its beginning or end with a single *, such as shop-* or *-prod"
    is_pattern = _PREFIX.fullmatch(text) or _SUFFIX.fullmatch(text)
    must(_LABEL.fullmatch(text) or is_pattern, "not a namespace, nor a beginning or end with one *", remedy)


def name_pattern(text: str) -> None:
    remedy = "write a container's name, or the beginning of one and a single * at the end"
    must(_LABEL.fullmatch(text) or _PREFIX.fullmatch(text), "not a container, nor a prefix with one trailing *", remedy)


def reason(text: str) -> None:
    must(text.strip(), "empty", "write why, such as INC-1234")
    must(text.isprintable(), "not plain text on one line", "write it on one line, without control characters")
