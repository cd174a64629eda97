"""Formerly valid tokens after revocation, expiry, or removal of their key or identity."""

from collections.abc import Callable
from functools import partial

from tests.authentication.hostile_tokens.token_builder import (
    CLUSTER,
    IDENTITIES,
    ISSUER,
    LEEWAY,
    LIFETIME,
    NOW,
    AuthenticatorSetup,
    Draft,
    Hostile,
    change_signature,
    cluster_token,
    good,
    key,
    malleate,
)
from tests.harness.identity import identities
from webhook.authentication.reasons import AuthFailure

_DAY = 86_400


def _deny(setup: AuthenticatorSetup) -> None:
    setup.revocations.denied.add((ISSUER, "6b1f"))


def _deny_cluster_token(setup: AuthenticatorSetup) -> None:
    setup.revocations.denied.add((CLUSTER, "6b1f"))


def _later(seconds: float) -> Callable[[AuthenticatorSetup], None]:
    def event(setup: AuthenticatorSetup) -> None:
        setup.clock.seconds = NOW + seconds

    return event


def _publish(*names: str) -> Callable[[AuthenticatorSetup], None]:
    return lambda setup: setup.own.publish(*(key(name).jwk() for name in names))


def _remove_cluster_keys(setup: AuthenticatorSetup) -> None:
    setup.cluster.publish()


def _replace_key(setup: AuthenticatorSetup) -> None:
    """Publish another key under the kid of the one that signed."""
    setup.own.publish({**key("ES256 second").jwk(), "kid": key("ES256").kid})


def _change_key_algorithm(setup: AuthenticatorSetup) -> None:
    setup.own.publish({**key("PS256").jwk(), "kid": key("RS256").kid})


def _bind_key_to_another_issuer(setup: AuthenticatorSetup) -> None:
    setup.own.publish({**key("ES256").jwk(), "iss": "https://elsewhere.example"})


def _bind_issuer_to_the_cluster(setup: AuthenticatorSetup) -> None:
    """Let the second source claim the issuer: keys of the first one may no longer sign for it."""
    setup.cluster.issuer = ISSUER
    setup.cluster.publish(key("ES256 cluster").jwk())


def _identities(old: str, new: str) -> Callable[[AuthenticatorSetup], None]:
    assert old in IDENTITIES
    return lambda setup: setup.identities.set(identities(IDENTITIES.replace(old, new)).value)


def _case(
    reason: AuthFailure,
    name: str,
    event: Callable[[AuthenticatorSetup], None],
    make_good: Callable[[], Draft] = good,
    status: int = 401,
) -> Hostile:
    return Hostile("replay", name, reason, make_good=make_good, event=event, status=status)


CASES = (
    _case(AuthFailure.DENIED, "its id is denied", _deny),
    *(
        _case(AuthFailure.DENIED, f"its id is denied, {name}", _deny, partial(good, name))
        for name in ("RS256", "PS256", "EdDSA")
    ),
    _case(AuthFailure.DENIED, "its id is denied, the cluster's", _deny_cluster_token, cluster_token),
    Hostile(
        "replay",
        "its id is denied, and its signature rewritten",
        AuthFailure.DENIED,
        change_signature(malleate),
        event=_deny,
    ),
    Hostile(
        "replay",
        "its id is denied, and it is signed again",
        AuthFailure.DENIED,
        lambda d: d.set_header(typ="at+jwt"),
        event=_deny,
    ),
    Hostile(
        "replay",
        "its id is denied, and its lifetime is longer",
        AuthFailure.DENIED,
        lambda d: d.set_claims(exp=NOW + LIFETIME + 1),
        event=_deny,
    ),
    Hostile(
        "replay",
        "its id is denied, and comes from another key",
        AuthFailure.DENIED,
        lambda _: good("RS256"),
        event=_deny,
    ),
    _case(AuthFailure.UNKNOWN_KEY, "its key was removed", _publish("ES256 second")),
    _case(AuthFailure.UNKNOWN_KEY, "its RSA key was removed", _publish("ES256"), lambda: good("RS256")),
    _case(AuthFailure.UNKNOWN_KEY, "all keys of its issuer were removed", _remove_cluster_keys, cluster_token),
    _case(AuthFailure.SIGNATURE, "its key was replaced under the same name", _replace_key),
    _case(AuthFailure.ALGORITHM, "its key is for another algorithm now", _change_key_algorithm, lambda: good("RS256")),
    _case(AuthFailure.KEY_ISSUER, "its key signs for another issuer now", _bind_key_to_another_issuer),
    _case(AuthFailure.KEY_ISSUER, "its issuer has keys of its own now", _bind_issuer_to_the_cluster),
    _case(AuthFailure.EXPIRED, "it expired, the leeway too", _later(LIFETIME + LEEWAY)),
    _case(
        AuthFailure.EXPIRED,
        "it expired within the minute for which it was remembered",
        _later(30),
        lambda: good(exp=NOW + 20),
    ),
    _case(AuthFailure.EXPIRED, "it expired long ago", _later(2 * LIFETIME)),
    _case(AuthFailure.NOT_YET_VALID, "the clock was set back", _later(-3600)),
    _case(
        AuthFailure.ISSUER,
        "its issuer is in no identity any more",
        _identities(f"issuer: {ISSUER}", "issuer: elsewhere"),
    ),
    _case(
        AuthFailure.AUDIENCE,
        "its audience is in no identity any more",
        _identities("audience: podgate", "audience: other"),
    ),
    _case(
        AuthFailure.IDENTITY_MISMATCH,
        "its subject is in no identity any more",
        _identities("podgate-system:*", "elsewhere:*"),
        cluster_token,
        403,
    ),
    _case(
        AuthFailure.IDENTITY_MISMATCH,
        "its certificate is in no identity any more",
        _identities("commonName: kube-apiserver", "commonName: somebody"),
        status=403,
    ),
    _case(
        AuthFailure.CERTIFICATE_EXPIRED,
        "its certificate expired",
        lambda setup: setattr(setup.clock, "seconds", NOW + 31 * _DAY * 100),
    ),
)
