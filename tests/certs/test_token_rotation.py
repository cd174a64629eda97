"""Rotation of signing keys over virtual time, with late readers, interruptions and clock jumps."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from certs.errors import CertsError
from certs.signing_keys import Keys, build_key_set, decode, encode, make_key, parse_key_set
from certs.token_issuer import ALGORITHMS, build_jwk, format_key_set, new_key, sign
from certs.token_rotation import Issuer, TokenState, TokenStep, find_next_step
from tests.core.strategies import examples
from tests.harness.nesting import BEYOND_EACH_INTERPRETER, nest
from webhook.authentication.jwks import list_issuers, read_key_set

HOUR, DAY = 3600, 86400
START = 1_800_000_000
ISSUER = Issuer("https://podgate", "podgate", "kube-apiserver", "kube-apiserver", HOUR, DAY)
SHORT = replace(ISSUER, token_seconds=600, key_seconds=600)
POLL_SECONDS = 10
CALM_SECONDS = POLL_SECONDS if "PODGATE_TEST_EXAMPLES" in os.environ else 60
"""Between two polls while only the token is renewed, every six minutes; `make soak` polls as usual."""
CALLER_DELAY_SECONDS = 80
"""The writer on the node polls every 20 s, kube-apiserver reads the file every minute."""


@dataclass
class TokenSimulation:
    """The recorded keys, the published key set and the token in use, with the earlier versions of late readers."""

    issuer: Issuer = ISSUER
    now: int = START
    keys: Keys = ()
    key_set: str = "{}"
    token: str | None = None
    key_sets: list[tuple[int, str]] = field(default_factory=list)
    """Each with the time of its replacement."""
    tokens: list[tuple[int, str]] = field(default_factory=list)
    unchecked_until: int = 0

    def step(self) -> TokenStep | None:
        view = TokenState(self.keys, parse_key_set(self.key_set.encode()), self.token)
        return find_next_step(view, self.issuer, self.now)

    def write(self, step: TokenStep, parts: int = 3) -> None:
        """Write the first parts of a step, in their order, as an interrupted process does."""
        writes: list[Callable[[], None]] = []
        if step.keys is not None:
            writes.append(lambda: setattr(self, "keys", decode(encode(step.keys or ()), "here")))
        if step.key_set is not None:
            writes.append(lambda: self.publish(step.key_set or ""))
        if step.token is not None:
            writes.append(lambda: self.set_token(step.token or ""))
        for write in writes[:parts]:
            write()

    def publish(self, text: str) -> None:
        self.key_sets.append((self.now, self.key_set))
        self.key_set = text

    def set_token(self, text: str) -> None:
        if self.token is not None:
            self.tokens.append((self.now, self.token))
        else:
            self.unchecked_until = self.now + self.issuer.settle_seconds  # no caller had a token before
        self.token = text

    def reconcile(self) -> list[str]:
        texts: list[str] = []
        while (step := self.step()) is not None:
            self.write(step)
            texts.append(step.text)
            assert len(texts) < 20, texts
        return texts

    def check(self) -> None:
        """Check that every token of a late caller verifies with every key set of a late server."""
        if self.now < self.unchecked_until or self.token is None:
            return
        oldest_read = self.now - self.issuer.settle_seconds
        sets = [self.key_set, *(text for until, text in self.key_sets if until > oldest_read)]
        caller_tokens = [self.token, *(text for until, text in self.tokens if until > self.now - CALLER_DELAY_SECONDS)]
        for token in caller_tokens:
            if read_expiry(token) > self.now:
                for text in sets:
                    assert verifies(token, text), f"at {self.now - START}"

    def run(self, seconds: int, every_seconds: int = POLL_SECONDS) -> None:
        """Reconcile periodically, as the loop does."""
        for _ in range(0, seconds, every_seconds):
            self.reconcile()
            self.check()
            self.now += every_seconds


@lru_cache(1000)
def verifies(token: str, key_set: str) -> bool:
    kid = jwt.get_unverified_header(token)["kid"]
    return any(
        key["kid"] == kid and has_valid_signature(token, tuple(key.items())) for key in parse_key_set(key_set.encode())
    )


@lru_cache(1000)
def has_valid_signature(token: str, jwk: tuple[tuple[str, str], ...]) -> bool:
    options = {"verify_exp": False, "verify_iat": False, "verify_aud": False}
    try:
        jwt.decode(token, jwt.PyJWK(dict(jwk)), algorithms=list(ALGORITHMS), options=options)  # type: ignore[arg-type]  # a TypedDict
    except jwt.InvalidSignatureError:
        return False
    return True


def claims(token: str | None) -> dict[str, object]:
    assert token is not None
    decoded: dict[str, object] = jwt.decode(token, options={"verify_signature": False})
    return decoded


@lru_cache(1000)
def read_expiry(token: str) -> int:
    return int(str(claims(token)["exp"]))


def kids(simulation: TokenSimulation) -> list[str]:
    return [key.kid for key in simulation.keys]


# --- step by step ---


def test_first_round_creates_and_publishes_a_key_and_signs() -> None:
    simulation = TokenSimulation()
    texts = simulation.reconcile()
    [kid] = kids(simulation)
    assert texts == [
        f"made key {kid}",
        "published 1 key(s)",
        f"key {kid} is published",
        f"signed a token with key {kid}: no valid token is in use",
    ]
    token_claims = claims(simulation.token)
    assert token_claims.pop("jti")
    assert token_claims == {
        "iss": "https://podgate",
        "aud": "podgate",
        "sub": "kube-apiserver",
        "client_id": "kube-apiserver",
        "iat": START,
        "exp": START + HOUR,
    }
    assert simulation.reconcile() == []


def test_token_is_renewed_at_a_tenth_of_its_lifetime() -> None:
    simulation = TokenSimulation()
    simulation.reconcile()
    first = simulation.token
    simulation.now += HOUR // 10 - 1
    assert simulation.reconcile() == []
    simulation.now += 1
    assert [text.rpartition(": ")[2] for text in simulation.reconcile()] == ["the token in use is due for renewal"]
    assert simulation.token != first


def test_new_key_signs_once_read_by_all_and_the_old_one_is_removed_with_its_last_token() -> None:
    simulation = TokenSimulation()
    simulation.run(DAY, CALM_SECONDS)
    [old] = kids(simulation)
    simulation.run(POLL_SECONDS)
    assert kids(simulation)[0] == old
    [_, new] = kids(simulation)
    assert {key["kid"] for key in parse_key_set(simulation.key_set.encode())} == {old, new}
    settle = ISSUER.settle_seconds
    simulation.run(settle - 2 * POLL_SECONDS)
    assert signer(simulation) == old
    simulation.run(HOUR // 10 + 2 * POLL_SECONDS)
    assert signer(simulation) == new
    assert simulation.keys[0].key is None, "the private key is deleted"
    last = simulation.keys[0].tokens_end
    assert last is not None
    simulation.run((last - simulation.now) // CALM_SECONDS * CALM_SECONDS, CALM_SECONDS)
    simulation.run(last - simulation.now)
    assert kids(simulation) == [old, new]
    simulation.run(150)
    assert kids(simulation) == [new]
    assert {key["kid"] for key in parse_key_set(simulation.key_set.encode())} == {new}


def signer(simulation: TokenSimulation) -> str:
    assert simulation.token is not None
    return str(jwt.get_unverified_header(simulation.token)["kid"])


def test_key_missing_from_the_set_restarts_its_wait() -> None:
    simulation = TokenSimulation()
    simulation.run(DAY, CALM_SECONDS)
    simulation.run(ISSUER.settle_seconds - POLL_SECONDS)
    old, new = kids(simulation)
    simulation.publish(build_key_set(simulation.keys[:1]))
    tampered_at = simulation.now
    simulation.run(ISSUER.settle_seconds - POLL_SECONDS)
    assert signer(simulation) == old
    simulation.run(HOUR // 10 + 2 * POLL_SECONDS)
    assert signer(simulation) == new
    signed_at = claims(simulation.token)["iat"]
    assert isinstance(signed_at, int)
    assert signed_at - tampered_at >= ISSUER.settle_seconds


def test_token_in_use_stays_valid_when_the_record_is_lost() -> None:
    simulation = TokenSimulation()
    simulation.run(HOUR)
    old = signer(simulation)
    simulation.keys = ()
    assert simulation.reconcile()[0] == f"adopted key {old}: it has signed the token in use"
    assert kids(simulation)[0] == old
    simulation.run(2 * HOUR)
    assert old not in kids(simulation)
    assert signer(simulation) == kids(simulation)[0]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_manually_issued_token_is_adopted_without_interruption(algorithm: str) -> None:
    key = new_key(algorithm)
    jwk = build_jwk(key.public_key(), algorithm)
    del jwk["use" if algorithm == "PS256" else "alg"]  # other tools omit them
    simulation = TokenSimulation(key_set=format_key_set([jwk]))
    simulation.token = sign(
        key, {**ISSUER.build_claims(START - 60), "iat": START - 60, "exp": START + 12 * HOUR}, algorithm
    )
    simulation.reconcile()
    assert verifies(simulation.token, simulation.key_set)
    simulation.run(ISSUER.settle_seconds - POLL_SECONDS)
    assert signer(simulation) == jwk["kid"]
    simulation.run(2 * POLL_SECONDS)
    assert signer(simulation) != jwk["kid"]
    assert jwk["kid"] in kids(simulation)


@pytest.mark.parametrize("bound", [{}, {"iss": "https://podgate"}])
def test_token_in_use_verifies_before_and_after_its_adoption(bound: dict[str, str]) -> None:
    """If one key of a set names an issuer, only keys that name it may sign for it."""
    key = new_key("ES256")
    simulation = TokenSimulation(key_set=format_key_set([{**build_jwk(key.public_key()), **bound}]))
    simulation.token = sign(key, {**ISSUER.build_claims(START), "exp": START + 12 * HOUR})
    for _ in range(3):
        simulation.reconcile()
        assert is_accepted(simulation)
        simulation.run(ISSUER.settle_seconds + POLL_SECONDS)
    assert signer(simulation) == kids(simulation)[-1]
    assert is_accepted(simulation)


def is_accepted(simulation: TokenSimulation) -> bool:
    """Whether a server with this key set accepts the token."""
    key_set_read = read_key_set(simulation.key_set.encode(), "jwks.json", may_bind=True)
    issuer = str(claims(simulation.token)["iss"])
    return key_set_read.keys[signer(simulation)].issuer == (
        issuer if issuer in list_issuers(key_set_read.keys) else None
    )


def test_adopted_key_keeps_its_issuer_and_another_key_signs_for_the_new_one() -> None:
    simulation = TokenSimulation()
    simulation.reconcile()
    old = signer(simulation)
    simulation.issuer = replace(ISSUER, issuer="https://other")
    simulation.run(ISSUER.settle_seconds - POLL_SECONDS)
    assert signer(simulation) == old
    assert is_accepted(simulation)
    simulation.run(2 * POLL_SECONDS)
    assert signer(simulation) != old
    assert claims(simulation.token)["iss"] == "https://other"
    assert is_accepted(simulation)
    assert {key["kid"]: key["iss"] for key in parse_key_set(simulation.key_set.encode())} == {
        old: "https://podgate",
        signer(simulation): "https://other",
    }


@pytest.mark.parametrize(
    "rows",
    [
        [{"kid": 1, "a": "x"}, {"kid": "y", "a": "x"}],
        [{"kid": [1]}, {"kid": "u"}, {}],
        [None, {"kid": "u"}],
        [[[1, 2]], [["a", 3]]],
    ],
)
def test_damaged_key_set_is_published_again(rows: list[object]) -> None:
    simulation = TokenSimulation()
    simulation.reconcile()
    expected = simulation.key_set
    simulation.key_set = json.dumps({"keys": [*json.loads(expected)["keys"], *rows]})
    assert simulation.reconcile() == ["published 1 key(s)"]
    assert json.loads(simulation.key_set) == json.loads(expected)


@pytest.mark.parametrize("replaced", [{"exp": "soon"}, {"iat": "soon"}, {"exp": 1e400}, {"exp": [1]}, {"iss": None}])
def test_token_with_invalid_claims_is_replaced(replaced: dict[str, object]) -> None:
    simulation = TokenSimulation()
    key = new_key("ES256")
    simulation.key_set = format_key_set([build_jwk(key.public_key())])
    token_claims = {**ISSUER.build_claims(START), **replaced}
    simulation.token = sign(key, {name: value for name, value in token_claims.items() if value is not None})
    assert simulation.reconcile()[-1].endswith("no valid token is in use")
    assert verifies(simulation.token, simulation.key_set)


@pytest.mark.parametrize("token", ["", "x", "a.b.c", sign(new_key("ES256"), {"iat": START, "exp": START + HOUR})])
def test_unverifiable_token_is_replaced(token: str) -> None:
    simulation = TokenSimulation()
    simulation.reconcile()
    simulation.token = token
    assert len(simulation.reconcile()) == 1
    assert verifies(simulation.token, simulation.key_set)


@pytest.mark.parametrize(
    "change",
    [{"audience": "other"}, {"subject": "other"}, {"client_id": None}, {"token_seconds": 1800}],
)
def test_token_is_reissued_when_its_claims_change(change: dict[str, object]) -> None:
    simulation = TokenSimulation()
    simulation.reconcile()
    simulation.issuer = replace(ISSUER, **change)  # type: ignore[arg-type]  # of the right types
    assert len(simulation.reconcile()) == 1
    assert simulation.reconcile() == []


def test_token_from_the_future_is_replaced_after_a_clock_correction() -> None:
    simulation = TokenSimulation()
    simulation.reconcile()
    simulation.now -= 10 * 60
    assert [text.rpartition(": ")[2] for text in simulation.reconcile()] == ["the token in use is due for renewal"]
    assert claims(simulation.token)["iat"] == simulation.now


def test_key_published_in_the_future_restarts_its_wait_after_a_clock_correction() -> None:
    simulation = TokenSimulation()
    simulation.run(DAY - HOUR, CALM_SECONDS)
    simulation.now += 7 * DAY
    simulation.reconcile()
    old = signer(simulation)
    simulation.now -= 7 * DAY
    simulation.key_sets, simulation.tokens = [], []  # they are in the future now
    simulation.run(ISSUER.settle_seconds + HOUR // 10 + 2 * POLL_SECONDS)
    assert signer(simulation) != old


def record(**fields: object) -> str:
    """Return the record of one key, with replaced fields."""
    row = {"jwk": {"kid": "x", "iss": "y"}, "key": None, "publishedAt": None, "tokensEnd": None}
    return json.dumps({"keys": [{**row, "madeAt": "2026-01-01T00:00:00Z", **fields}]})


_NESTED = f'{{"keys": {nest(BEYOND_EACH_INTERPRETER)}}}'


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"keys": [{}]}',
        '{"keys": [{"jwk": 1}]}',
        '{"keys": 1}',
        pytest.param(_NESTED, id="nested"),
        record(jwk=1),
        record(jwk={}),
        record(key=1),
    ],
)
def test_invalid_record_is_reported_and_not_overwritten(text: str) -> None:
    with pytest.raises(CertsError, match="Secret x: not a list of signing keys"):
        decode(text.encode(), "Secret x")


def test_a_key_set_that_is_nested_too_deeply_has_no_keys() -> None:
    assert parse_key_set(_NESTED.encode()) == ()


def test_key_with_the_public_part_of_another_key_is_rejected() -> None:
    mismatched = replace(make_key(START, "https://podgate"), jwk=build_jwk(new_key("ES256").public_key()))
    with pytest.raises(CertsError):
        decode(encode((mismatched,)), "Secret x")


def test_a_key_must_outlive_its_tokens() -> None:
    assert replace(ISSUER, key_seconds=HOUR - 1).find_mistake()
    assert not SHORT.find_mistake()


# --- over a long time ---


def test_key_set_stays_small_over_weeks_of_rotation() -> None:
    simulation = TokenSimulation(replace(ISSUER, token_seconds=12 * HOUR))
    seen: set[str] = set()
    for _ in range(14 * 24 * 4):
        simulation.run(POLL_SECONDS)
        simulation.now += HOUR // 4 - POLL_SECONDS
        seen |= set(kids(simulation))
        assert len(simulation.keys) <= 3
    assert len(seen) >= 12


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["look", "look", "look", "killed", "suspended", "tampered", "forgotten", "set back"]),
        st.integers(0, 3),
        st.integers(1, 400),
    ),
    max_size=20,
)


@examples(40)
@given(ACTIONS, st.sampled_from([ISSUER, SHORT]))
def test_every_issued_token_verifies_with_every_key_set_in_force(
    actions: list[tuple[str, int, int]], issuer: Issuer
) -> None:
    simulation = TokenSimulation(issuer)
    for action, parts, amount in actions:
        match action:
            case "killed":
                if (step := simulation.step()) is not None:
                    simulation.write(step, parts)
            case "suspended":
                simulation.now += amount * issuer.key_seconds // 100
            case "tampered":
                simulation.publish("{}")
                simulation.unchecked_until = simulation.now + issuer.settle_seconds
            case "forgotten" if (
                len({key.kid for key in simulation.keys if key.is_signing}) == 1
            ):  # else one signing key is lost
                simulation.keys = ()
                if (
                    simulation.token is not None and read_expiry(simulation.token) <= simulation.now
                ):  # the token is rejected anyway
                    simulation.unchecked_until = simulation.now + issuer.settle_seconds
            case "set back":
                simulation.now -= min(amount, 4)
        if action in {"tampered", "forgotten"}:
            simulation.reconcile()
        simulation.run(amount, 20)
    simulation.run(2 * issuer.settle_seconds + issuer.token_seconds + 200, 30)
    last = max(at for at, key in enumerate(simulation.keys) if key.is_signing)
    assert all((key.tokens_end or 0) + 150 > simulation.now for key in simulation.keys[:last]), (
        "expired keys are removed"
    )
    assert simulation.token is not None
    assert read_expiry(simulation.token) > simulation.now
