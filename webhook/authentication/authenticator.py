"""Authenticator: identifies a Caller by a client certificate and a bearer token that match one configured identity."""

import base64
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from webhook.authentication.certificate_identity import CertificateIdentity, read_certificate
from webhook.authentication.identities import CertificateField, ClientIdSource, Identities, Identity, Role
from webhook.authentication.jwt import (
    LEEWAY_SECONDS_MAX,
    Binding,
    Claims,
    TokenRules,
    verify,
)
from webhook.authentication.reasons import AuthFailure, refuse
from webhook.core.lru_cache import LruCache
from webhook.errors import AuthenticationError, UserError
from webhook.ports import Caller, Clock, CurrentValue, TokenKeys, TokenRevocations

_CACHED_SECONDS_MAX = 60
_CERTIFICATES_MAX = 512
_TOKENS_MAX = 32
"""Per certificate: a client that sends more tokens displaces only its own."""
_CLIENT_ID_LENGTH_MAX = 256
_US = 1_000_000


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """Requirements on every token, regardless of its identity."""

    lifetime_max_seconds: float = 86_400
    leeway_seconds: float = 10
    """Permitted clock skew of an issuer."""
    binding: Binding = Binding.IF_PRESENT

    def __post_init__(self) -> None:
        if not 0 <= self.leeway_seconds <= LEEWAY_SECONDS_MAX:
            raise UserError(
                f"a token leeway of {self.leeway_seconds:g} s",
                f"choose at most {LEEWAY_SECONDS_MAX} s, and set the clocks right",
            )


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """A token that was verified at `since_us`; the result is valid until `until_us`, unless the token is denied.

    Neither the token nor the certificate expires within that time.
    """

    caller: Caller
    jti: str | None
    since_us: int
    until_us: float
    generations: tuple[int, int]
    """Generations of the keys and identities with which it was verified."""

    def limit_until(self, seconds: float) -> "VerifiedToken":
        """Return a copy that is valid at most until `seconds` since the Unix epoch."""
        return self if self.until_us <= seconds * _US else replace(self, until_us=seconds * _US)


@dataclass(frozen=True, slots=True)
class _Holder:
    """A certificate, and the valid tokens recently used with it, by the Authorization header."""

    certificate: CertificateIdentity
    verified: LruCache[str, VerifiedToken] = field(default_factory=lambda: LruCache(_TOKENS_MAX))


class Authenticator:
    """Authenticates each request, not each connection: connections outlive tokens and certificates.

    Only valid tokens are cached, each with its certificate. A change of keys or identities clears the cache.
    """

    def __init__(
        self,
        identities: CurrentValue[Identities],
        keys: TokenKeys,
        clock: Clock,
        limits: TokenLimits = TokenLimits(),
        denials: TokenRevocations | None = None,
    ) -> None:
        self._identities = identities
        self._keys = keys
        self._clock = clock
        self._limits = limits
        self._denials = denials
        self._holders: LruCache[bytes, _Holder] = LruCache(_CERTIFICATES_MAX)
        self._generations = (-1, -1)
        self._rules = TokenRules(issuers=(), audiences=(), lifetime_max_seconds=0, leeway_seconds=0)

    def authenticate(self, certificate_der: bytes | None, authorization: Sequence[str]) -> Caller:
        """Return the caller; AuthenticationError (401 or 403) if it has no configured identity.

        KeyNotFoundError: another try after `refetch_keys` may succeed.

        `authorization` holds every Authorization header of the request; more than one is an error.
        """
        return self.identify(certificate_der, authorization).caller

    def identify(self, certificate_der: bytes | None, authorization: Sequence[str]) -> VerifiedToken:
        """Return the caller and how long the result is valid; raises the errors of `authenticate`."""
        now_us = self._clock.now_us()
        if not certificate_der:
            refuse(AuthFailure.NO_CERTIFICATE, "the connection has no client certificate")
        if (self._keys.generation, self._identities.generation) != self._generations:
            self._clear_tokens()
        holder = self._holders.get(certificate_der) or self._add_holder(certificate_der)
        certificate = holder.certificate
        if now_us >= certificate.expires_at_seconds * _US:
            refuse(AuthFailure.CERTIFICATE_EXPIRED, f"{certificate.name!r} expired while its connection was open")
        known = holder.verified.get(authorization[0]) if len(authorization) == 1 else None
        # If it is earlier than `since_us`, the clock was set back: verify the token again.
        if known is None or not known.since_us <= now_us < known.until_us:
            known = self._verify_token(_parse_bearer(authorization), certificate, now_us)
            holder.verified.keep(authorization[0], known)
        if self._is_denied(known, now_us):
            refuse(AuthFailure.DENIED, f"iss {known.caller.issuer!r}, jti {known.jti!r} is denied")
        return known

    def still_holds(self, known: VerifiedToken) -> bool:
        """Return whether `identify` would return the same: nothing has changed, and nothing has expired."""
        now_us = self._clock.now_us()
        if not known.since_us <= now_us < known.until_us:
            return False
        if (self._keys.generation, self._identities.generation) != known.generations:
            return False
        return self._denials is None or not self._is_denied(known, now_us)

    def _is_denied(self, known: VerifiedToken, now_us: int) -> bool:
        if self._denials is None or known.jti is None:
            return False
        return self._denials.is_revoked(known.caller.issuer, known.jti, now_us)

    async def refetch_keys(self) -> bool:
        """Fetch the keys, unless that was done just now; return whether there are new ones."""
        return await self._keys.refetch()

    def _clear_tokens(self) -> None:
        """Clear the cached tokens: the keys or identities have changed."""
        self._generations = (self._keys.generation, self._identities.generation)
        for holder in self._holders.values():
            holder.verified.clear()
        callers = self._identities.value.callers
        issuers = {identity.issuer for identity in callers}
        self._rules = TokenRules(
            issuers=None if None in issuers else {issuer for issuer in issuers if issuer is not None},
            audiences={identity.audience for identity in callers},
            lifetime_max_seconds=self._limits.lifetime_max_seconds,
            leeway_seconds=self._limits.leeway_seconds,
        )

    def _add_holder(self, der: bytes) -> _Holder:
        holder = _Holder(read_certificate(der, sha256(der).digest()))
        self._holders.keep(der, holder)
        return holder

    def _verify_token(self, token: str, certificate: CertificateIdentity, now_us: int) -> VerifiedToken:
        try:
            claims = verify(token, self._keys, self._rules, now_us / _US)
        except AuthenticationError as error:
            # The token is not verified, so its owner is unknown; the certificate of the connection is known.
            detail = f"{error.detail}, from the certificate {certificate.name!r}"
            raise type(error)(error.reason, detail, error.status) from None
        self._check_binding(claims, certificate)
        caller = self._find_caller(certificate, claims)
        token_until_us = (claims.expires_at_seconds + self._limits.leeway_seconds) * _US
        until_us = min(token_until_us, certificate.expires_at_seconds * _US, now_us + _CACHED_SECONDS_MAX * _US)
        return VerifiedToken(caller, claims.jti, now_us, until_us, self._generations)

    def _find_caller(self, certificate: CertificateIdentity, claims: Claims) -> Caller:
        """Return the caller of the first matching identity: the order in the file is the precedence."""
        for identity in self._identities.value.callers:
            if _matches_identity(identity, certificate, claims):
                client_id = _read_client_id(identity, certificate, claims)
                expiry = claims.expires_at_seconds, int(certificate.expires_at_seconds)
                return Caller(identity.role, client_id, claims.issuer, claims.subject, certificate.name, *expiry)
        raise AuthenticationError(
            AuthFailure.IDENTITY_MISMATCH,
            f"no identity joins the certificate {certificate.name!r} with iss {claims.issuer!r}, "
            f"aud {claims.audience!r}, sub {claims.subject!r}",
            status=403,
        )

    def _check_binding(self, claims: Claims, certificate: CertificateIdentity) -> None:
        """Check that a certificate-bound token is used with its certificate (RFC 8705)."""
        binding = self._limits.binding
        if binding is Binding.OFF:
            return
        if "cnf" not in claims.everything:
            if binding is Binding.REQUIRED:
                refuse(AuthFailure.BINDING, "the token is bound to no certificate (cnf)", status=403)
            return
        confirmation = claims.everything["cnf"]
        bound = confirmation.get("x5t#S256") if isinstance(confirmation, dict) else None
        actual = base64.urlsafe_b64encode(certificate.digest).rstrip(b"=")
        if not isinstance(bound, str) or not hmac.compare_digest(bound.encode(), actual):
            refuse(
                AuthFailure.BINDING, f"the token is bound to another certificate than {certificate.name!r}", status=403
            )


def require_role(caller: Caller, role: Role) -> None:
    """Reject an authenticated caller whose role does not permit this route."""
    if caller.role != role:
        refuse(
            AuthFailure.ROLE, f"{caller.client_id!r} has the role {caller.role}, the route requires {role}", status=403
        )


def _parse_bearer(authorization: Sequence[str]) -> str:
    if not authorization:
        refuse(AuthFailure.NO_TOKEN, "no Authorization header")
    if len(authorization) > 1:
        refuse(AuthFailure.SEVERAL_TOKENS, f"{len(authorization)} Authorization headers")
    scheme, _, token = authorization[0].partition(" ")
    if scheme.lower() != "bearer" or not token:
        refuse(AuthFailure.NO_TOKEN, "the Authorization header holds no bearer token")
    if not token.isascii():
        refuse(AuthFailure.TOKEN_MALFORMED, "not ASCII")
    return token


def _matches_identity(identity: Identity, certificate: CertificateIdentity, claims: Claims) -> bool:
    if identity.issuer not in {None, claims.issuer} or identity.audience != claims.audience:
        return False
    is_issuer = identity.certificate_field is CertificateField.COMMON_NAME_IS_ISSUER
    named = certificate.has_name(identity.certificate_field, claims.issuer if is_issuer else identity.certificate_name)
    return named and identity.matches_subject(claims.subject)


def _read_client_id(identity: Identity, certificate: CertificateIdentity, claims: Claims) -> str:
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
        refuse(AuthFailure.CLAIMS, f"{source} holds no client id of 1 to {_CLIENT_ID_LENGTH_MAX} printable characters")
    return value
