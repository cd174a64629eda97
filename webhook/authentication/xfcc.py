"""Strict parser of X-Forwarded-Client-Cert: returns the client certificate that a proxy forwards.

`Hash=...;Cert="<PEM, percent-encoded>"`: elements are separated by commas, pairs by semicolons; values that contain
either are quoted. Only `Cert` identifies the client. A `Hash`, if present, must match it. All other keys are ignored:
they may be wrong, or contain names that the client chose.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from hmac import compare_digest
from typing import NoReturn

from webhook.authentication.reasons import AuthFailure
from webhook.errors import AuthenticationError

HEADER_BYTES_MAX = 12 * 1024
"""Less than the maximum of one header line (16 KiB). A percent-encoded certificate takes 1 to 3 KiB."""

_ONCE = ("cert", "hash", "subject")
_MANY = ("by", "uri", "dns")
_KEYS = (*_ONCE, *_MANY)
_PAIR = re.compile(r'([A-Za-z]+)=(?:"([^"]*)"|([^",;=]*))(;|,|$)')
_VISIBLE = re.compile(r"[ -~]*")
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----\n([A-Za-z0-9+/=\n]+)\n-----END CERTIFICATE-----\n?")
_HASH = re.compile(r"[0-9a-f]{64}")


def parse_forwarded_certificate(values: Sequence[str]) -> bytes:
    """Return the certificate in DER; AuthenticationError if it is missing, ambiguous or malformed.

    `values` holds every such header of the request. Exactly one header with exactly one element is accepted.
    """
    if not values:
        raise AuthenticationError(
            AuthFailure.FORWARDED_MISSING, "the proxy does not say which certificate it was shown"
        )
    if len(values) > 1:
        _refuse(f"{len(values)} headers")
    pairs: dict[str, str] = {}
    for key, value in _parse_pairs(values[0]):
        if key in pairs and key in _ONCE:
            _refuse(f"{key!r} is duplicated")
        pairs[key] = value
    if "cert" not in pairs:
        _refuse(f"no Cert among {', '.join(pairs)}: let the proxy send it")
    der = _decode_certificate(pairs["cert"])
    if "hash" in pairs:
        _check_hash(pairs["hash"], der)
    return der


def _parse_pairs(header: str) -> Iterator[tuple[str, str]]:
    """Yield the pairs of the only element, with keys in lower case.

    A backslash is rejected: its meaning depends on the proxy (Envoy passes on those of RFC 2253), and under another
    reading a part of a name could be taken for a pair.
    """
    if len(header) > HEADER_BYTES_MAX:
        _refuse(f"{len(header)} bytes, at most {HEADER_BYTES_MAX} are read")
    if not _VISIBLE.fullmatch(header) or "\\" in header:
        _refuse("control characters, non-ASCII characters, or a backslash")
    position, ending = 0, ";"
    while ending == ";":
        found = _PAIR.match(header, position)
        if found is None:
            _refuse(f"no pair at character {position}")
        key, quoted, plain, ending = found.groups()
        if key.lower() not in _KEYS:
            _refuse(f"an unknown key at character {position}: let the proxy send Cert alone")
        yield key.lower(), plain if quoted is None else quoted
        position = found.end()
    if ending == ",":
        _refuse("more than one element: a proxy before the proxy, or a caller, has written an element too")


def _decode_certificate(encoded: str) -> bytes:
    """Decode the percent-encoded PEM of exactly one certificate; `+` is literal."""
    pem = re.sub(r"%([0-9A-Fa-f]{2})", lambda found: chr(int(found[1], 16)), encoded)
    found = _PEM.fullmatch(pem)
    if found is None:
        _refuse("Cert is not one certificate in PEM, percent-encoded")
    text = found[1].replace("\n", "")
    try:
        der = base64.b64decode(text, validate=True)
    except binascii.Error:
        der = b""
    if base64.b64encode(der).decode() != text:  # only the canonical encoding, so that no other reader differs
        _refuse("Cert is not base64")
    return der


def _check_hash(digest: str, der: bytes) -> None:
    if not _HASH.fullmatch(digest) or not compare_digest(digest, sha256(der).hexdigest()):
        _refuse("Hash is not that of Cert")


def _refuse(detail: str) -> NoReturn:
    raise AuthenticationError(AuthFailure.FORWARDED_MALFORMED, f"X-Forwarded-Client-Cert: {detail}")
