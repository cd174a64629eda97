"""Reasons for rejecting a call. They are labels of a metric: stable, and few."""

from enum import StrEnum
from typing import NoReturn

from webhook.errors import AuthenticationError


class AuthFailure(StrEnum):
    # the certificate
    NO_CERTIFICATE = "no_certificate"
    CERTIFICATE_EXPIRED = "certificate_expired"
    CERTIFICATE_UNTRUSTED = "certificate_untrusted"
    CERTIFICATE_PURPOSE = "certificate_purpose"
    CERTIFICATE_AMBIGUOUS = "certificate_ambiguous"
    # the forwarded certificate
    FORWARDED = "forwarded_certificate"
    NOT_A_PROXY = "not_a_proxy"
    FORWARDED_MISSING = "no_forwarded_certificate"
    FORWARDED_MALFORMED = "malformed_forwarded_certificate"
    FORWARDED_FOREIGN = "foreign_forwarded_certificate"
    # reduced mode
    PATH = "path"
    # the token
    NO_TOKEN = "no_token"  # noqa: S105 - a word, not a secret
    SEVERAL_TOKENS = "several_tokens"
    TOKEN_MALFORMED = "malformed_token"  # noqa: S105 - a word, not a secret
    HEADER = "token_header"
    ALGORITHM = "algorithm"
    UNKNOWN_KEY = "unknown_key"
    KEY_ISSUER = "key_issuer"
    SIGNATURE = "signature"
    CLAIMS = "claims"
    EXPIRED = "expired"
    NOT_YET_VALID = "not_yet_valid"
    LIFETIME = "lifetime"
    ISSUER = "issuer"
    AUDIENCE = "audience"
    DENIED = "denied_token"
    # certificate and token together
    IDENTITY_MISMATCH = "identity_mismatch"
    BINDING = "binding"
    ROLE = "role"


REASONS = (
    *(f"authentication_{refusal}" for refusal in AuthFailure),
    # the connection
    "accept",
    "connection_limit",
    "header_timeout",
    "answer_unread",
    # the handshake
    "handshake_certificate_expired",
    "handshake_certificate_foreign",
    "handshake_certificate_not_yet_valid",
    "handshake_certificate_purpose",
    "handshake_cut",
    "handshake_failed",
    "handshake_no_certificate",
    "handshake_protocol",
    "handshake_refused_by_client",
    "handshake_timeout",
    # the request
    "bad_request",
    "not_found",
    "method",
    "overloaded",
    "reporters_overloaded",
    "internal_error",
    # the request body
    "media_type",
    "expectation",
    "body_too_large",
    "body_timeout",
    "body_displaced",
    "body_broken",
    "caller_gone",
    # the content of the body
    "bad_extender_request",
    "bad_review",
    "bad_outcomes",
    "not_a_reporter",
    "no_policy",
    "namespace_unknown",
    "policy_unchecked",
)
"""Every label of rejected calls. All are exported from 0 on, so that the first rejection is an increase."""


def refuse(reason: AuthFailure, detail: str, status: int = 401) -> NoReturn:
    """Raise AuthenticationError; `detail` is for the log."""
    raise AuthenticationError(reason, detail, status) from None
