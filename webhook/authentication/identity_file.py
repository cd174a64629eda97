"""Identity file: the callers' identities and the proxies, from a watched YAML file."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from webhook.authentication.documents import convert_document_errors, read_list
from webhook.authentication.identities import (
    SPIFFE,
    CertificateField,
    ClientIdSource,
    Identities,
    Identity,
    Proxy,
    Role,
)
from webhook.core.document.schema_problems import find_schema_problems
from webhook.core.document.yaml.document_kind import DocumentKind, build_mark
from webhook.core.document.yaml.nodes import Node
from webhook.core.document.yaml.parts import DocumentPart, InvalidPaths, convert, stop_at_invalid
from webhook.core.document.yaml.problems import DocumentError, Problem
from webhook.errors import UserError
from webhook.support.watched_file import WatchedFile

_FILE_BYTES_MAX = 256 * 1024
_ROLE_PATTERN = build_mark("role", r"\s*[\"']?(apiserver|reporter|proxy)\b").pattern
_REMEDY = "give entries such as {role: apiserver, certificate: ..., issuer: ..., audience: ..., subject: ...}"
_KIND = DocumentKind(
    "a list of identities",
    # An entry that lacks its certificate is recognized by its role.
    (build_mark("role"), re.compile(f"{_ROLE_PATTERN}|{build_mark('certificate').pattern}", re.MULTILINE)),
    "it lacks role or certificate",
    _REMEDY,
)
_PROXY = "proxy"
"""The role of a proxy, which is not a caller: its entry has other fields."""
_Text = Annotated[str, Meta(min_length=1)]


class _Certificate(Struct, rename="camel"):
    """The name that the certificate must have: exactly one field."""

    common_name: _Text | None = None
    uri: _Text | None = None
    dns_name: _Text | None = None
    common_name_is_issuer: bool | None = None


class _ClientId(Struct):
    """The source of the client id: exactly one field."""

    claim: _Text | None = None
    source: Literal["subject", "issuer", "commonName"] | None = field(default=None, name="from")


class _CallerEntry(Struct, rename="camel"):
    """One caller as written."""

    role: Literal["apiserver", "reporter", "proxy"]
    certificate: _Certificate
    audience: _Text
    subject: _Text
    issuer: _Text | None = None
    client_id: _ClientId | None = None


class _ProxyEntry(Struct):
    """One proxy as written: it has a certificate, but no token."""

    role: Literal["proxy"]
    certificate: _Certificate


class IdentityFile(WatchedFile[Identities]):
    """The current identities. The file is read again when it changes; an invalid one changes nothing.

    Entries with the role proxy are required if callers connect through one (`behind_proxy`), and an error otherwise.
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
    """Parse the document; UserError lists every problem, one per line."""
    with convert_document_errors(name, content, _KIND):
        root, problems = read_list(content, _REMEDY)
        assert isinstance(root.value, list)  # noqa: S101  read_list has checked it
        if not root.value:
            problems.append(root.build_problem("no identity", _REMEDY))
        found: dict[Identity | Proxy, Node] = {}
        for entry in root.value:
            wrong = list(_find_problems(entry))
            problems += wrong
            if not wrong and not problems:
                first = found.setdefault(_build_identity(entry), entry)
                if first is not entry:
                    problems.append(
                        entry.build_problem(f"the same identity as in line {first.line}", "remove one of the two")
                    )
        if problems:
            raise DocumentError(problems)
    callers = tuple(identity for identity in found if isinstance(identity, Identity))
    return Identities(callers, tuple(proxy for proxy in found if isinstance(proxy, Proxy)))


def _is_proxy(entry: Node) -> bool:
    return isinstance(entry.value, dict) and "role" in entry.value and entry.value["role"].value == _PROXY


def _find_problems(entry: Node) -> Iterator[Problem]:
    if not isinstance(entry.value, dict):
        yield entry.build_problem("not a mapping", _REMEDY)
        return
    is_proxy = _is_proxy(entry)
    found = list(find_schema_problems(entry, _ProxyEntry if is_proxy else _CallerEntry))
    yield from (mistake.problem for mistake in found)
    part = DocumentPart(entry, (), InvalidPaths(path for mistake in found for path in mistake.wrong))
    rules = (_check_proxy_certificate,) if is_proxy else (_check_issuer, _check_star, _check_client_id)
    for rule in (_check_certificate_name, *rules):
        yield from stop_at_invalid(rule(part))


def _check_one_field(part: DocumentPart | None, names: str) -> Iterator[Problem]:
    if part is not None and isinstance(part.node.value, dict) and len(part.node.value) != 1:
        yield part.report(f"{len(part.node.value)} fields", f"write exactly one of {names}")


def _check_certificate_name(entry: DocumentPart) -> Iterator[Problem]:
    certificate = entry.get("certificate")
    yield from _check_one_field(certificate, ", ".join(CertificateField))
    names = certificate.fields() if certificate is not None else {}
    if (flag := names.get(CertificateField.COMMON_NAME_IS_ISSUER)) is not None and flag.node.value is not True:
        yield flag.report("can only be true", "write true, or leave it out")
    if (uri := names.get(CertificateField.URI)) is not None and not uri.node.text.startswith(SPIFFE):
        yield uri.report("not a SPIFFE ID", f"write one that begins with {SPIFFE}")
    if (dns_name := names.get(CertificateField.DNS_NAME)) is not None and "*" in dns_name.node.text:
        yield dns_name.report("a wildcard", "write one whole name")


def _check_proxy_certificate(entry: DocumentPart) -> Iterator[Problem]:
    if (flag := entry.get("certificate", CertificateField.COMMON_NAME_IS_ISSUER)) is not None:
        yield flag.report_field("a proxy has no token, and so no issuer", "write the name of its certificate")


def _check_issuer(entry: DocumentPart) -> Iterator[Problem]:
    if entry.get("issuer") is None and entry.get("certificate", CertificateField.COMMON_NAME_IS_ISSUER) is None:
        yield entry.report_missing("issuer", "required", "add issuer, or certificate: {commonNameIsIssuer: true}")


def _check_star(entry: DocumentPart) -> Iterator[Problem]:
    subject = entry.get("subject")
    if subject is not None and "*" in subject.node.text[:-1]:
        yield subject.report("a `*` that is not the last character", "write `*` once, at the end, for any remainder")


def _check_client_id(entry: DocumentPart) -> Iterator[Problem]:
    yield from _check_one_field(entry.get("clientId"), "claim, from")


def _build_identity(entry: Node) -> Identity | Proxy:
    """Return a checked entry as its identity."""
    if _is_proxy(entry):
        return Proxy(*_find_certificate_name(convert(entry, _ProxyEntry).certificate))
    caller = convert(entry, _CallerEntry)
    certificate_field, name = _find_certificate_name(caller.certificate)
    client_id = caller.client_id or _ClientId()
    source = ClientIdSource.CLAIM if client_id.claim else ClientIdSource(client_id.source or ClientIdSource.SUBJECT)
    return Identity(
        Role(caller.role),
        certificate_field,
        name,
        caller.issuer,
        caller.audience,
        caller.subject,
        source,
        client_id.claim or "",
    )


def _find_certificate_name(certificate: _Certificate) -> tuple[CertificateField, str]:
    if certificate.common_name is not None:
        return CertificateField.COMMON_NAME, certificate.common_name
    if certificate.uri is not None:
        return CertificateField.URI, certificate.uri
    if certificate.dns_name is not None:
        return CertificateField.DNS_NAME, certificate.dns_name.lower()
    return CertificateField.COMMON_NAME_IS_ISSUER, ""
