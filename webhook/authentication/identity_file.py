"""The identity tuples from a YAML file: typed, strict, every mistake at once."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from webhook.authentication.identities import (
    SPIFFE,
    CertificateField,
    ClientIdSource,
    Identities,
    Identity,
    Proxy,
    Role,
)
from webhook.core.document.yaml.document_kind import DocumentKind, mark_of
from webhook.errors import UserError
from webhook.support.strict_yaml import read_yaml, shown_only_as
from webhook.support.watched_file import Reloading

_FILE_BYTES_MAX = 256 * 1024
_A_ROLE = mark_of("role", r"\s*[\"']?(apiserver|reporter|proxy)\b").pattern
_KIND = DocumentKind(
    "a list of identities",
    # An entry whose certificate was forgotten is known by its role.
    (mark_of("role"), re.compile(f"{_A_ROLE}|{mark_of('certificate').pattern}", re.MULTILINE)),
    "it lacks role or certificate",
    "give entries such as {role: apiserver, certificate: ..., issuer: ..., audience: ..., subject: ...}",
)
_PROXY = "proxy"
"""A role that is no caller's: an entry of its own kind."""


class IdentityFile(Reloading[Identities]):
    """The identities in force: the file is read again when it changes, the last good ones are kept.

    Entries about proxies are wanted where callers come through one (`behind_proxy`), and a mistake elsewhere.
    """

    def __init__(
        self,
        path: Path,
        on_reading: Callable[[str | None], None] = lambda _: None,
        *,
        behind_proxy: bool = False,
    ) -> None:
        def parse(contents: tuple[bytes, ...]) -> Identities:
            identities = parse_identities(contents[0], str(path))
            _check_roles(identities, str(path), behind_proxy=behind_proxy)
            return identities

        super().__init__([path], _FILE_BYTES_MAX, parse, on_reading)


def _check_roles(identities: Identities, name: str, *, behind_proxy: bool) -> None:
    if not any(caller.role is Role.APISERVER for caller in identities.callers):
        remedy = "add {role: apiserver, certificate: ..., issuer: ..., audience: ..., subject: ...}"
        raise UserError(f"{name}: no entry has the role apiserver: every review would be refused", remedy)
    if identities.proxies and not behind_proxy:
        remedy = "remove them, or serve with --client-identity forwarded"
        raise UserError(f"{name}: entries with the role proxy, and none is expected", remedy)
    if behind_proxy and not identities.proxies:
        remedy = "add {role: proxy, certificate: {commonName: NAME}} for the proxy"
        raise UserError(f"{name}: no entry has the role proxy: every call would be refused", remedy)


def parse_identities(content: bytes, name: str) -> Identities:
    """Read the document; UserError with every mistake, one a line."""
    with shown_only_as(_KIND, content, name):
        return _parsed(content, name)


def _parsed(content: bytes, name: str) -> Identities:
    document = read_yaml(content, name)
    mistakes: list[str] = []
    found: list[Identity | Proxy] = []
    if not isinstance(document, list) or not document:
        mistakes.append(f"must be a list of at least one identity, not {_shown(document)}")
    else:
        for position, entry in enumerate(document):
            is_proxy = isinstance(entry, dict) and entry.get("role") == _PROXY
            one = (_ProxyReader if is_proxy else _Reader)(entry, f"[{position}]", mistakes).entry()
            if one is not None and one in found:
                mistakes.append(f"[{position}]: says the same as [{found.index(one)}]: remove one")
            found += [one] if one is not None else []
    if mistakes:
        raise UserError(
            "\n".join(f"{name}: {mistake}" for mistake in mistakes),
            "an identity has the keys role, certificate, issuer, audience, subject and, if wanted, clientId; "
            "a proxy has role and certificate",
        )
    callers = tuple(one for one in found if isinstance(one, Identity))
    return Identities(callers, tuple(one for one in found if isinstance(one, Proxy)))


class _Reader:
    """Reads one entry and notes all that is wrong with it."""

    _KEYS: tuple[str, ...] = ("role", "certificate", "issuer", "audience", "subject", "clientId")

    def __init__(self, entry: Any, path: str, mistakes: list[str]) -> None:
        self._entry: dict[Any, Any] = entry if isinstance(entry, dict) else {}
        self._path = path
        self._mistakes = mistakes
        self._good = True
        if not isinstance(entry, dict):
            self._wrong("", entry, f"must be a mapping with the keys {', '.join(self._KEYS)}")
        for key in self._entry:
            if key not in self._KEYS:
                self._wrong(f".{key}", self._entry[key], f"unknown key: the keys are {', '.join(self._KEYS)}")

    def entry(self) -> Identity | Proxy | None:
        if not self._good and not self._entry:
            return None
        role = self._choice("role", Role)
        field, certificate = self._certificate()
        optional = field is CertificateField.COMMON_NAME_IS_ISSUER and "issuer" not in self._entry
        issuer = None if optional else self._text("issuer")
        audience, subject = self._text("audience"), self._text("subject")
        if "*" in subject[:-1]:
            self._wrong(".subject", subject, "`*` stands for the rest of a subject: once, at its end")
        source, claim = self._client_id()
        if not self._good or role is None or field is None:
            return None
        return Identity(role, field, certificate, issuer, audience, subject, source, claim)

    def _certificate(self) -> tuple[CertificateField | None, str]:
        key, value = self._single("certificate", tuple(CertificateField))
        if key is None:
            return None, ""
        field, path = CertificateField(key), f".certificate.{key}"
        if field is CertificateField.COMMON_NAME_IS_ISSUER:
            self._check(value is True, path, value, "must be true; leave it out otherwise")
            return field, ""
        if not self._check(isinstance(value, str) and bool(value), path, value, "must be a text, not empty"):
            return None, ""
        if field is CertificateField.URI:
            self._check(value.startswith(SPIFFE), path, value, f"must begin with {SPIFFE}")
        if field is CertificateField.DNS_NAME:
            value = value.lower()
            self._check("*" not in value, path, value, "must be one name: no wildcards")
        return field, value

    def _client_id(self) -> tuple[ClientIdSource, str]:
        if "clientId" not in self._entry:
            return ClientIdSource.SUBJECT, ""
        key, value = self._single("clientId", ("claim", "from"))
        if key == "claim":
            self._check(isinstance(value, str) and bool(value), ".clientId.claim", value, "must name a claim")
            return ClientIdSource.CLAIM, str(value)
        sources = [str(source) for source in ClientIdSource if source is not ClientIdSource.CLAIM]
        if key == "from" and self._check(
            _among(value, sources), ".clientId.from", value, f"must be one of {', '.join(sources)}"
        ):
            return ClientIdSource(value), ""
        return ClientIdSource.SUBJECT, ""

    def _single(self, key: str, allowed: tuple[str, ...]) -> tuple[str | None, Any]:
        value = self._entry.get(key)
        if isinstance(value, dict) and len(value) == 1 and _among(next(iter(value)), allowed):
            return next(iter(value.items()))
        self._wrong(f".{key}", value, f"must have exactly one of {', '.join(allowed)}")
        return None, None

    def _choice(self, key: str, choices: type[Role]) -> Role | None:
        value = self._entry.get(key)
        words = [str(choice) for choice in choices]
        allowed = f"must be one of {', '.join([*words, _PROXY])}"
        return choices(str(value)) if self._check(_among(value, words), f".{key}", value, allowed) else None

    def _text(self, key: str) -> str:
        value = self._entry.get(key)
        good = self._check(isinstance(value, str) and bool(value), f".{key}", value, "must be a text, not empty")
        return value if good else ""  # type: ignore[return-value]  # checked above

    def _check(self, good: bool, path: str, value: Any, remedy: str) -> bool:  # noqa: FBT001  the condition
        if not good:
            self._wrong(path, value, remedy)
        return good

    def _wrong(self, path: str, value: Any, remedy: str) -> None:
        self._good = False
        self._mistakes.append(f"{self._path}{path}: {_shown(value)}: {remedy}")


class _ProxyReader(_Reader):
    """Reads one entry about a proxy: it brings no token of its own."""

    _KEYS = ("role", "certificate")

    def entry(self) -> Proxy | None:
        field, certificate = self._certificate()
        if field is CertificateField.COMMON_NAME_IS_ISSUER:
            self._wrong(".certificate", field, "a proxy has no token, and so no issuer: name its certificate")
        return Proxy(field, certificate) if self._good and field is not None else None


def _among(value: Any, words: Sequence[str]) -> bool:
    return isinstance(value, str) and value in words


def _shown(value: Any) -> str:
    return "missing" if value is None else repr(value)[:80]
