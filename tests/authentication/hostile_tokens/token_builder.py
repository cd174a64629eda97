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
from webhook.authentication.authenticator import Authenticator, TokenLimits
from webhook.authentication.identities import Identities
from webhook.authentication.reasons import AuthFailure
from webhook.authentication.tokens.jwks import read_key_set
from webhook.authentication.tokens.jwks_union import JwksUnion
from webhook.errors import AuthenticationError
from webhook.ports import Caller, TokenKey

NOW = int(time.time())
"""When these modules were read: the world's clock stands there."""
LEEWAY = 10
LIFE = 80_000
"""Of a good token, in seconds: long, since all tests of a session use the same ones."""
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
    """Return a key of that name, made once: RSA keys take their time."""
    algorithm = name.partition(" ")[0]
    return signer(algorithm, kid=name.replace(" ", "-"))


STRANGER, SHARED = "ES256 stranger", "ES256 shared"


def own_keys() -> list[dict[str, Any]]:
    """Return the set of the first source, which is bound to no issuer, but for one key of it."""
    shared = {**key("ES256 ours").jwk(), "kid": key(SHARED).kid}
    bound = {**key("ES256 bound").jwk(), "iss": BOUND}
    good = [key(name).jwk() for name in ("ES256", "RS256", "PS256", "EdDSA", "ES256 second")]
    return [*good, shared, bound, *useless_keys().values()]


def cluster_keys() -> list[dict[str, Any]]:
    """Return the set of the second source, all of the cluster's issuer; one has the name of another's key."""
    return [key("ES256 cluster").jwk(), key(SHARED).jwk()]


@cache
def useless_keys() -> dict[str, dict[str, Any]]:
    """Return keys that stand in a set and may verify nothing, by what is wrong with them."""
    ours = key("ES256 useless").jwk()
    weak = RSAAlgorithm.to_jwk(weak_rsa().public_key(), as_dict=True)
    large = ECAlgorithm.to_jwk(large_curve().public_key(), as_dict=True)
    private = key("ES256 useless").key
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    return {
        "for encryption": {**ours, "kid": "for-encryption", "use": "enc"},
        "for signing only": {**ours, "kid": "for-signing-only", "key_ops": ["sign"]},
        "burnt": {**ECAlgorithm.to_jwk(private, as_dict=True), "kid": "burnt"},
        "too weak": {**weak, "kid": "too-weak", "alg": "RS256"},
        "of another curve": {**large, "kid": "of-another-curve"},
        "of another algorithm": {**ours, "kid": "of-another-algorithm", "alg": "ES384"},
        "of a kind unknown": {**ours, "kid": "of-a-kind-unknown", "kty": "AKP"},
        "shared secret": {"kty": "oct", "k": segment(b"x" * 32), "kid": "shared-secret", "alg": "HS256"},
        "twice": {**ours, "kid": "twice"},
        "twice again": {**key("ES256 second").jwk(), "kid": "twice"},
    }


@cache
def weak_rsa() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=1024)  # noqa: S505 - must be refused


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
    """A token to be, and how it is presented. What is raw replaces what would be made of the parts."""

    by: Signer
    claims: Mapping[str, Any]
    header: Mapping[str, Any]
    raw_header: bytes | None = None
    raw_claims: bytes | None = None
    sign: Callable[[bytes], bytes] | None = None
    respell: Callable[[str], str] = str
    """What becomes of the finished text."""
    certificate: str = MINE

    def with_claims(self, **changed: Any) -> "Draft":
        """Return it with other claims, None for JSON's null; `without` leaves some out."""
        return replace(self, claims={**self.claims, **changed})

    def without(self, *names: str) -> "Draft":
        return replace(self, claims={name: value for name, value in self.claims.items() if name not in names})

    def with_header(self, **changed: Any) -> "Draft":
        return replace(self, header={**self.header, **changed})

    def header_without(self, *names: str) -> "Draft":
        return replace(self, header={name: value for name, value in self.header.items() if name not in names})

    @cached_property
    def token(self) -> str:
        """The text, signed once: what is presented again is the same."""
        header = self.raw_header if self.raw_header is not None else text(self.header)
        claims = self.raw_claims if self.raw_claims is not None else text(self.claims)
        unsigned = f"{segment(header)}.{segment(claims)}"
        signature = (self.sign or self.signature)(unsigned.encode())
        return self.respell(f"{unsigned}.{segment(signature)}")

    def signature(self, unsigned: bytes) -> bytes:
        """Sign as PyJWT itself would, but whatever one likes."""
        made: bytes = jwt.get_algorithm_by_name(self.by.algorithm).sign(unsigned, self.by.key)
        return made


def text(document: object) -> bytes:
    return json.dumps(document).encode()


def good(name: str = "ES256", **changed: Any) -> Draft:
    """Return a draft that is accepted as it is."""
    by = key(name)
    names = {"iss": ISSUER, "aud": "podgate", "sub": SUBJECT, "jti": "6b1f", "client_id": "c"}
    claims = {**names, "iat": NOW - 60, "nbf": NOW - 60, "exp": NOW + LIFE, **changed}
    return Draft(by, claims, {"alg": by.algorithm, "typ": "JWT", "kid": by.kid})


def clusters() -> Draft:
    """Return a good token of the cluster's own issuer."""
    return good("ES256 cluster", iss=CLUSTER, aud=["podgate"], sub=ACCOUNT)


def bound_to(name: str = MINE) -> Draft:
    return good(cnf={"x5t#S256": thumbprint(name)})


def malleated(signature: bytes) -> bytes:
    """Return the other signature that verifies whenever this one does: anybody can make it."""
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
        return {self.issuer} if self.issuer else {one.issuer for one in self.keys.values() if one.issuer}

    async def refetch(self) -> None:
        """Do nothing."""


@dataclass
class Denials:
    """Denies what a test says."""

    denied: set[tuple[str, str]] = field(default_factory=set)

    def is_revoked(self, issuer: str, jti: str, _now_us: int) -> bool:
        return (issuer, jti) in self.denied


class World:
    """An authenticator among real keys and certificates, and everything that may change around it."""

    def __init__(self, limits: TokenLimits = LIMITS) -> None:
        self.clock = Clock()
        self.own, self.cluster = Source("own"), Source("cluster", CLUSTER)
        self.own.publish(*own_keys())
        self.cluster.publish(*cluster_keys())
        self.identities: Steady[Identities] = identities(IDENTITIES)
        self.denials = Denials()
        ring = JwksUnion([self.own, self.cluster])
        self.authenticator = Authenticator(self.identities, ring, self.clock, limits, self.denials)

    def ask(self, draft: Draft) -> Caller:
        return self.authenticator.authenticate(certificate(draft.certificate), [f"Bearer {draft.token}"])

    def refusal(self, draft: Draft) -> AuthenticationError | None:
        try:
            self.ask(draft)
        except AuthenticationError as error:
            return error
        return None


@dataclass(frozen=True)
class Hostile:
    """One fault: what spoils the good draft, or what happens in the world after that was accepted."""

    group: str
    name: str
    reason: AuthFailure
    fault: Callable[[Draft], Draft] = lambda draft: draft
    of: Callable[[], Draft] = good
    then: Callable[[World], None] | None = None
    status: int = 401
    limits: TokenLimits = LIMITS


def spelt(change: Callable[[str], str]) -> Callable[[Draft], Draft]:
    """Return the fault that only spells the finished token differently."""
    return lambda draft: replace(draft, respell=change)


def signed(change: Callable[[bytes], bytes]) -> Callable[[Draft], Draft]:
    """Return the fault that only changes the signature."""
    return lambda draft: replace(draft, sign=lambda unsigned: change(draft.signature(unsigned)))


def raw_claims(change: Callable[[bytes], bytes]) -> Callable[[Draft], Draft]:
    """Return the fault that changes the claims' bytes, rightly signed."""
    return lambda draft: replace(draft, raw_claims=change(text(draft.claims)))


def raw_header(change: Callable[[bytes], bytes]) -> Callable[[Draft], Draft]:
    """Return the fault that changes the header's bytes, rightly signed."""
    return lambda draft: replace(draft, raw_header=change(text(draft.header)))
