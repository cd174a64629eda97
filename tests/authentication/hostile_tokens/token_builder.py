"""Drafts of tokens with one fault each, and the real keys and certificates to verify them."""

import base64
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from certs.authority import Authority, KeyPair
from tests.harness.identity import Signer, Steady, der, identities, segment, signer
from tests.harness.rsa_keys import rsa_key
from webhook.authentication.authenticator import Authenticator, TokenLimits
from webhook.authentication.identities import Identities
from webhook.authentication.jwks import read_key_set
from webhook.authentication.published_keys import JwksUnion
from webhook.authentication.reasons import AuthFailure
from webhook.errors import AuthenticationError
from webhook.ports import Caller, TokenKey

NOW = int(time.time())
"""The time of import, at which the tests' clock stands."""
LEEWAY = 10
LIFETIME = 80_000
"""Seconds for which a good token is valid: long, because all tests of a session share them."""
ISSUER, CLUSTER, BOUND = "kube-apiserver", "https://kubernetes.default.svc", "https://bound.example"
SUBJECT, ACCOUNT = "kube-apiserver", "system:serviceaccount:podgate-system:caller"
MINE, OTHER, PROBER = "mine", "other", "prober"
LIMITS = TokenLimits(leeway_seconds=LEEWAY)
_BY_NAME = "certificate: {commonName: kube-apiserver}, audience: podgate"
IDENTITIES = f"""
- {{role: apiserver, {_BY_NAME}, issuer: {ISSUER}, subject: {SUBJECT}}}
- {{role: apiserver, {_BY_NAME}, issuer: {CLUSTER}, subject: "system:serviceaccount:podgate-system:*"}}
- {{role: apiserver, {_BY_NAME}, issuer: {BOUND}, subject: {SUBJECT}}}
- {{role: reporter, certificate: {{commonName: prober}}, issuer: prober, audience: podgate, subject: "prober-*"}}
"""
_CURVE_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


@cache
def key(name: str) -> Signer:
    """Return the key of that name, generated once because RSA keys are slow."""
    algorithm = name.partition(" ")[0]
    return signer(algorithm, kid=name.replace(" ", "-"))


STRANGER, SHARED = "ES256 stranger", "ES256 shared"


def own_keys() -> list[dict[str, Any]]:
    """Return the key set of the first source; only one of its keys is bound to an issuer."""
    shared = {**key("ES256 ours").jwk(), "kid": key(SHARED).kid}
    bound = {**key("ES256 bound").jwk(), "iss": BOUND}
    good = [key(name).jwk() for name in ("ES256", "RS256", "PS256", "EdDSA", "ES256 second")]
    return [*good, shared, bound, *unusable_keys().values()]


def cluster_keys() -> list[dict[str, Any]]:
    """Return the key set of the second source, all of the cluster's issuer; one shares a kid with the first source."""
    return [key("ES256 cluster").jwk(), key(SHARED).jwk()]


@cache
def unusable_keys() -> dict[str, dict[str, Any]]:
    """Return keys of the set that must verify nothing, by their fault."""
    usable = key("ES256 useless").jwk()
    weak = RSAAlgorithm.to_jwk(weak_rsa().public_key(), as_dict=True)
    large = ECAlgorithm.to_jwk(large_curve().public_key(), as_dict=True)
    private = key("ES256 useless").key
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    return {
        "for encryption": {**usable, "kid": "for-encryption", "use": "enc"},
        "for signing only": {**usable, "kid": "for-signing-only", "key_ops": ["sign"]},
        "burnt": {**ECAlgorithm.to_jwk(private, as_dict=True), "kid": "burnt"},
        "too weak": {**weak, "kid": "too-weak", "alg": "RS256"},
        "of another curve": {**large, "kid": "of-another-curve"},
        "of another algorithm": {**usable, "kid": "of-another-algorithm", "alg": "ES384"},
        "of a kind unknown": {**usable, "kid": "of-a-kind-unknown", "kty": "AKP"},
        "shared secret": {"kty": "oct", "k": segment(b"x" * 32), "kid": "shared-secret", "alg": "HS256"},
        "twice": {**usable, "kid": "twice"},
        "twice again": {**key("ES256 second").jwk(), "kid": "twice"},
    }


@cache
def weak_rsa() -> rsa.RSAPrivateKey:
    return rsa_key(1024)  # must be refused


@cache
def large_curve() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP384R1())


@cache
def authority() -> Authority:
    return Authority.create()


@cache
def client(name: str) -> KeyPair:
    return authority().issue_client({MINE: "kube-apiserver", OTHER: "kube-apiserver", PROBER: "prober"}[name])


def certificate(name: str) -> bytes:
    """Return the DER form of one of the clients' certificates."""
    return der(client(name))


def thumbprint(name: str) -> str:
    return segment(hashlib.sha256(certificate(name)).digest())


@dataclass(frozen=True)
class Draft:
    """A token to build, and the certificate that presents it. Raw parts replace those that would be built."""

    signer: Signer
    claims: Mapping[str, Any]
    header: Mapping[str, Any]
    raw_header: bytes | None = None
    raw_claims: bytes | None = None
    sign: Callable[[bytes], bytes] | None = None
    respell: Callable[[str], str] = str
    """A change of the finished text."""
    certificate: str = MINE

    def set_claims(self, **changed: Any) -> "Draft":
        """Return the draft with other claims (None is JSON's null); `without` removes claims."""
        return replace(self, claims={**self.claims, **changed})

    def remove_claims(self, *names: str) -> "Draft":
        return replace(self, claims={name: value for name, value in self.claims.items() if name not in names})

    def set_header(self, **changed: Any) -> "Draft":
        return replace(self, header={**self.header, **changed})

    def header_without(self, *names: str) -> "Draft":
        return replace(self, header={name: value for name, value in self.header.items() if name not in names})

    @cached_property
    def token(self) -> str:
        """The text, signed once: the same token can be presented again."""
        header = self.raw_header if self.raw_header is not None else text(self.header)
        claims = self.raw_claims if self.raw_claims is not None else text(self.claims)
        unsigned = f"{segment(header)}.{segment(claims)}"
        signature = (self.sign or self.signature)(unsigned.encode())
        return self.respell(f"{unsigned}.{segment(signature)}")

    def signature(self, unsigned: bytes) -> bytes:
        """Sign any bytes as PyJWT does."""
        signature: bytes = jwt.get_algorithm_by_name(self.signer.algorithm).sign(unsigned, self.signer.key)
        return signature


def text(document: object) -> bytes:
    return json.dumps(document).encode()


def good(name: str = "ES256", **changed: Any) -> Draft:
    """Return the draft of an accepted token."""
    signing_key = key(name)
    names = {"iss": ISSUER, "aud": "podgate", "sub": SUBJECT, "jti": "6b1f", "client_id": "c"}
    claims = {**names, "iat": NOW - 60, "nbf": NOW - 60, "exp": NOW + LIFETIME, **changed}
    return Draft(signing_key, claims, {"alg": signing_key.algorithm, "typ": "JWT", "kid": signing_key.kid})


def cluster_token() -> Draft:
    """Return a good token of the cluster's own issuer."""
    return good("ES256 cluster", iss=CLUSTER, aud=["podgate"], sub=ACCOUNT)


def make_bound(name: str = MINE) -> Draft:
    return good(cnf={"x5t#S256": thumbprint(name)})


def malleate(signature: bytes) -> bytes:
    """Return the other valid form of an ECDSA signature, which anyone can compute."""
    s = int.from_bytes(signature[32:])
    return signature[:32] + (_CURVE_ORDER - s).to_bytes(32)


def signature_of(token: str) -> bytes:
    return base64.urlsafe_b64decode(token.rpartition(".")[2] + "==")


@dataclass
class Clock:
    """A clock that a test sets."""

    seconds: float = NOW

    def now_us(self) -> int:
        return int(self.seconds * 1_000_000)


@dataclass
class Source:
    """A KeySource that a test changes."""

    name: str
    issuer: str | None = None
    generation: int = 1
    keys: Mapping[str, TokenKey] = field(default_factory=dict)
    trouble: str = ""
    may_claim: bool = False

    def publish(self, *jwks: Mapping[str, Any]) -> None:
        content = json.dumps({"keys": list(jwks)}).encode()
        self.keys = read_key_set(content, self.name, self.issuer, may_bind=self.issuer is None).keys if jwks else {}
        self.generation += 1

    @property
    def claimed(self) -> set[str]:
        return {self.issuer} if self.issuer else {each.issuer for each in self.keys.values() if each.issuer}

    async def refetch(self) -> None:
        """Do nothing."""


@dataclass
class FakeRevocations:
    """Revoked tokens that a test sets."""

    denied: set[tuple[str, str]] = field(default_factory=set)

    def is_revoked(self, issuer: str, jti: str, _now_us: int) -> bool:
        return (issuer, jti) in self.denied


class AuthenticatorSetup:
    """An authenticator with real keys and certificates, and inputs that a test can change."""

    def __init__(self, limits: TokenLimits = LIMITS) -> None:
        self.clock = Clock()
        self.own, self.cluster = Source("own"), Source("cluster", CLUSTER)
        self.own.publish(*own_keys())
        self.cluster.publish(*cluster_keys())
        self.identities: Steady[Identities] = identities(IDENTITIES)
        self.revocations = FakeRevocations()
        key_union = JwksUnion([self.own, self.cluster])
        self.authenticator = Authenticator(self.identities, key_union, self.clock, limits, self.revocations)

    def authenticate(self, draft: Draft) -> Caller:
        return self.authenticator.authenticate(certificate(draft.certificate), [f"Bearer {draft.token}"])

    def refusal(self, draft: Draft) -> AuthenticationError | None:
        try:
            self.authenticate(draft)
        except AuthenticationError as error:
            return error
        return None


@dataclass(frozen=True)
class Hostile:
    """A hostile token: a fault in a good draft, or an event after the draft was accepted."""

    group: str
    name: str
    reason: AuthFailure
    fault: Callable[[Draft], Draft] = lambda draft: draft
    make_good: Callable[[], Draft] = good
    event: Callable[[AuthenticatorSetup], None] | None = None
    status: int = 401
    limits: TokenLimits = LIMITS


def make_respelling(change: Callable[[str], str]) -> Callable[[Draft], Draft]:
    """Return a fault that only changes the finished text of the token."""
    return lambda draft: replace(draft, respell=change)


def change_signature(change: Callable[[bytes], bytes]) -> Callable[[Draft], Draft]:
    """Return a fault that only changes the signature."""
    return lambda draft: replace(draft, sign=lambda unsigned: change(draft.signature(unsigned)))


def raw_claims(change: Callable[[bytes], bytes]) -> Callable[[Draft], Draft]:
    """Return a fault that changes the bytes of the claims and signs them correctly."""
    return lambda draft: replace(draft, raw_claims=change(text(draft.claims)))


def raw_header(change: Callable[[bytes], bytes]) -> Callable[[Draft], Draft]:
    """Return a fault that changes the bytes of the header and signs them correctly."""
    return lambda draft: replace(draft, raw_header=change(text(draft.header)))
