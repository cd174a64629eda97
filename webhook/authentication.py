"""Who is calling: a client certificate and a bearer token that agree on one configured identity make a Caller."""

import base64
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeVar

from webhook.certificates import CertificateIdentity, read_certificate
from webhook.errors import AuthenticationError, UserError
from webhook.identities import CertificateField, ClientIdSource, Identity, Role
from webhook.ports import Caller, Clock, TokenKeys
from webhook.refusals import Refusal
from webhook.tokens import LEEWAY_MAX_SECONDS, Claims, TokenRules, refuse, verify

_CACHED_MAX_SECONDS = 60
_CACHED_TOKENS_MAX = 1024
_CACHED_CERTIFICATES_MAX = 1024
_CLIENT_ID_LENGTH_MAX = 256
_US = 1_000_000
_K = TypeVar("_K")
_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class _Verified:
    caller: Caller
    until_us: int


class Authenticator:
    """Answers for each request: identity is checked per call, since connections outlive tokens and certificates."""

    def __init__(
        self,
        identities: Sequence[Identity],
        keys: TokenKeys,
        clock: Clock,
        *,
        token_lifetime_max_seconds: float = 86_400,
        token_leeway_seconds: float = 10,
        binding_required: bool = False,
    ) -> None:
        if not 0 <= token_leeway_seconds <= LEEWAY_MAX_SECONDS:
            raise UserError(
                f"a token leeway of {token_leeway_seconds:g} s",
                f"choose at most {LEEWAY_MAX_SECONDS} s, and set the clocks right",
            )
        self._identities = tuple(identities)
        self._keys = keys
        self._clock = clock
        self._binding_required = binding_required
        issuers = {identity.issuer for identity in identities}
        self._rules = TokenRules(
            issuers=None if None in issuers else {issuer for issuer in issuers if issuer is not None},
            audiences={identity.audience for identity in identities},
            lifetime_max_seconds=token_lifetime_max_seconds,
            leeway_seconds=token_leeway_seconds,
        )
        self._certificates: dict[bytes, CertificateIdentity] = {}
        self._verified: dict[tuple[bytes, bytes, int], _Verified] = {}

    def authenticate(self, certificate_der: bytes | None, authorization: Sequence[str]) -> Caller:
        """Return who calls; AuthenticationError (401 or 403) where that is nobody we know.

        `authorization` is every Authorization header of the request: two of them are two opinions.
        """
        now_us = self._clock.now_us()
        if not certificate_der:
            refuse(Refusal.NO_CERTIFICATE, "the connection has no client certificate")
        certificate = self._certificate(certificate_der)
        if now_us >= certificate.expires_at_seconds * _US:
            refuse(Refusal.CERTIFICATE_EXPIRED, f"{certificate.name!r} expired while its connection was open")
        token = _bearer(authorization)
        generation = self._keys.generation
        key = (sha256(token.encode()).digest(), certificate.digest, generation)
        known = self._verified.get(key)
        if known is not None and now_us < known.until_us:
            return known.caller
        try:
            claims = verify(token, self._keys, self._rules, now_us / _US)
        except AuthenticationError as error:
            # Whose token it is nobody knows; whose connection it came over we do.
            detail = f"{error.detail}, from the certificate {certificate.name!r}"
            raise AuthenticationError(error.reason, detail, error.status) from None
        self._check_binding(claims, certificate)
        caller = self._caller(certificate, claims)
        _remember(
            self._verified,
            key,
            _Verified(caller, min(claims.expires_at_seconds * _US, now_us + _CACHED_MAX_SECONDS * _US)),
            _CACHED_TOKENS_MAX,
        )
        return caller

    def _certificate(self, der: bytes) -> CertificateIdentity:
        certificate = self._certificates.get(der)
        if certificate is None:
            certificate = read_certificate(der, sha256(der).digest())
            _remember(self._certificates, der, certificate, _CACHED_CERTIFICATES_MAX)
        return certificate

    def _caller(self, certificate: CertificateIdentity, claims: Claims) -> Caller:
        """Return the caller of the first tuple that fits: their order in the file is their precedence."""
        for identity in self._identities:
            if _fits(identity, certificate, claims):
                client_id = _client_id(identity, certificate, claims)
                return Caller(identity.role, client_id, claims.issuer, claims.subject, certificate.name)
        raise AuthenticationError(
            Refusal.IDENTITY_MISMATCH,
            f"no identity joins the certificate {certificate.name!r} with iss {claims.issuer!r}, "
            f"aud {claims.audience!r}, sub {claims.subject!r}",
            status=403,
        )

    def _check_binding(self, claims: Claims, certificate: CertificateIdentity) -> None:
        """Check that a token made for one certificate comes with that certificate (RFC 8705)."""
        if "cnf" not in claims.everything:
            if self._binding_required:
                refuse(Refusal.BINDING, "the token is bound to no certificate (cnf)", status=403)
            return
        confirmation = claims.everything["cnf"]
        bound = confirmation.get("x5t#S256") if isinstance(confirmation, dict) else None
        actual = base64.urlsafe_b64encode(certificate.digest).rstrip(b"=")
        if not isinstance(bound, str) or not hmac.compare_digest(bound.encode(), actual):
            refuse(Refusal.BINDING, f"the token is bound to another certificate than {certificate.name!r}", status=403)


def require_role(caller: Caller, role: Role) -> None:
    """Refuse a caller that is known but may not use this route."""
    if caller.role != role:
        refuse(Refusal.ROLE, f"{caller.client_id!r} has the role {caller.role}, the route asks for {role}", status=403)


def _bearer(authorization: Sequence[str]) -> str:
    if not authorization:
        refuse(Refusal.NO_TOKEN, "no Authorization header")
    if len(authorization) > 1:
        refuse(Refusal.SEVERAL_TOKENS, f"{len(authorization)} Authorization headers")
    scheme, _, token = authorization[0].partition(" ")
    if scheme.lower() != "bearer" or not token:
        refuse(Refusal.NO_TOKEN, "the Authorization header holds no bearer token")
    if not token.isascii():
        refuse(Refusal.TOKEN_MALFORMED, "not ASCII")
    return token


def _fits(identity: Identity, certificate: CertificateIdentity, claims: Claims) -> bool:
    if identity.issuer not in {None, claims.issuer} or identity.audience != claims.audience:
        return False
    match identity.certificate_field:
        case CertificateField.COMMON_NAME_IS_ISSUER:
            named = certificate.common_name == claims.issuer
        case CertificateField.COMMON_NAME:
            named = certificate.common_name == identity.certificate_name
        case CertificateField.URI:
            named = certificate.spiffe_id == identity.certificate_name
        case CertificateField.DNS_NAME:
            named = identity.certificate_name in certificate.dns_names
    return named and identity.subject_fits(claims.subject)


def _client_id(identity: Identity, certificate: CertificateIdentity, claims: Claims) -> str:
    match identity.client_id_source:
        case ClientIdSource.SUBJECT:
            value = claims.subject
        case ClientIdSource.ISSUER:
            value = claims.issuer
        case ClientIdSource.COMMON_NAME:
            value = certificate.common_name or ""
        case ClientIdSource.CLAIM:
            value = claims.everything.get(identity.client_id_claim, "")
    if not isinstance(value, str) or not 0 < len(value) <= _CLIENT_ID_LENGTH_MAX or not value.isprintable():
        source = identity.client_id_claim or identity.client_id_source
        refuse(Refusal.CLAIMS, f"{source} holds no client id of 1 to {_CLIENT_ID_LENGTH_MAX} printable characters")
    return value


def _remember(cache: dict[_K, _V], key: _K, value: _V, entries_max: int) -> None:
    """Keep `value`, at the cost of the oldest entry: no flood may grow the cache."""
    if len(cache) >= entries_max:
        del cache[next(iter(cache))]
    cache[key] = value
