"""Why a caller is turned away: the words that label the metric. Each is stable, and few enough for a label."""

from enum import StrEnum


class Refusal(StrEnum):
    # the certificate
    NO_CERTIFICATE = "no_certificate"
    CERTIFICATE_EXPIRED = "certificate_expired"
    CERTIFICATE_AMBIGUOUS = "certificate_ambiguous"
    # the token
    NO_TOKEN = "no_token"  # noqa: S105 - a word, not a secret
    SEVERAL_TOKENS = "several_tokens"
    TOKEN_MALFORMED = "malformed_token"  # noqa: S105 - a word, not a secret
    HEADER = "token_header"
    ALGORITHM = "algorithm"
    UNKNOWN_KEY = "unknown_key"
    SIGNATURE = "signature"
    CLAIMS = "claims"
    EXPIRED = "expired"
    NOT_YET_VALID = "not_yet_valid"
    LIFETIME = "lifetime"
    ISSUER = "issuer"
    AUDIENCE = "audience"
    # both together
    IDENTITY_MISMATCH = "identity_mismatch"
    BINDING = "binding"
    ROLE = "role"
