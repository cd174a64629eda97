"""The identity tuples from a YAML file: typed, strict, every mistake at once."""

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import yaml

from webhook.errors import UserError
from webhook.identities import SPIFFE, CertificateField, ClientIdSource, Identity, Role


def load_identities(path: Path) -> tuple[Identity, ...]:
    """Read the file; UserError with every mistake, one a line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise UserError(f"{path}: cannot be read: {reason}", "check the path and its permissions") from None
    return parse_identities(text, str(path))


def parse_identities(text: str, name: str) -> tuple[Identity, ...]:
    try:
        document = yaml.load(text, Loader=_UniqueKeysLoader)  # noqa: S506 - a SafeLoader that is stricter still
    except (yaml.YAMLError, RecursionError) as error:
        raise UserError(f"{name}: not YAML: {' '.join(str(error).split())}", "mend the syntax") from None
    mistakes: list[str] = []
    identities: list[Identity] = []
    if not isinstance(document, list) or not document:
        mistakes.append(f"must be a list of at least one identity, not {_shown(document)}")
    else:
        for position, entry in enumerate(document):
            identity = _Reader(entry, f"[{position}]", mistakes).identity()
            if identity is not None and identity in identities:
                mistakes.append(f"[{position}]: says the same as [{identities.index(identity)}]: remove one")
            identities += [identity] if identity is not None else []
    if mistakes:
        raise UserError(
            "\n".join(f"{name}: {mistake}" for mistake in mistakes),
            "an identity has the keys role, certificate, issuer, audience, subject and, if wanted, clientId",
        )
    return tuple(identities)


class _Reader:
    """Reads one entry and notes all that is wrong with it."""

    _KEYS = ("role", "certificate", "issuer", "audience", "subject", "clientId")

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

    def identity(self) -> Identity | None:
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
        return (
            choices(str(value))
            if self._check(_among(value, words), f".{key}", value, f"must be one of {', '.join(words)}")
            else None
        )

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


def _among(value: Any, words: Sequence[str]) -> bool:
    return isinstance(value, str) and value in words


def _shown(value: Any) -> str:
    return "missing" if value is None else repr(value)[:80]


class _UniqueKeysLoader(yaml.SafeLoader):
    """A second key of the same name would silently win: it is an error here."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002  PyYAML's
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} stands twice", key.start_mark
                )
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)
