"""Formerly valid tokens after revocation, expiry, or removal of their key or identity."""

from collections.abc import Callable
from functools import partial

from tests.authentication.hostile_tokens.token_builder import (
    CLUSTER,
    IDENTITIES,
    ISSUER,
    LEEWAY,
    LIFE,
    NOW,
    Draft,
    Hostile,
    World,
    clusters,
    good,
    key,
    malleated,
    signed,
)
from tests.harness.identity import identities
from webhook.authentication.reasons import AuthFailure

_DAY = 86_400


def _deny(world: World) -> None:
    world.denials.denied.add((ISSUER, "6b1f"))


def _deny_the_clusters(world: World) -> None:
    world.denials.denied.add((CLUSTER, "6b1f"))


def _later(seconds: float) -> Callable[[World], None]:
    def then(world: World) -> None:
        world.clock.seconds = NOW + seconds

    return then


def _publish(*names: str) -> Callable[[World], None]:
    return lambda world: world.own.publish(*(key(name).jwk() for name in names))


def _cluster_gone(world: World) -> None:
    world.cluster.publish()


def _replaced(world: World) -> None:
    """Put another key in the place of the one that signed."""
    world.own.publish({**key("ES256 second").jwk(), "kid": key("ES256").kid})


def _now_for_another_algorithm(world: World) -> None:
    world.own.publish({**key("PS256").jwk(), "kid": key("RS256").kid})


def _now_anothers(world: World) -> None:
    world.own.publish({**key("ES256").jwk(), "iss": "https://elsewhere.example"})


def _now_the_clusters(world: World) -> None:
    """Let the second source claim the issuer: the first one's keys speak for it no more."""
    world.cluster.issuer = ISSUER
    world.cluster.publish(key("ES256 cluster").jwk())


def _identities(old: str, new: str) -> Callable[[World], None]:
    assert old in IDENTITIES
    return lambda world: world.identities.set(identities(IDENTITIES.replace(old, new)).value)


def _case(
    reason: AuthFailure, name: str, then: Callable[[World], None], of: Callable[[], Draft] = good, status: int = 401
) -> Hostile:
    return Hostile("replay", name, reason, of=of, then=then, status=status)


CASES = (
    _case(AuthFailure.DENIED, "its id is denied", _deny),
    *(
        _case(AuthFailure.DENIED, f"its id is denied, {name}", _deny, partial(good, name))
        for name in ("RS256", "PS256", "EdDSA")
    ),
    _case(AuthFailure.DENIED, "its id is denied, the cluster's", _deny_the_clusters, clusters),
    Hostile(
        "replay", "its id is denied, and its signature rewritten", AuthFailure.DENIED, signed(malleated), then=_deny
    ),
    Hostile(
        "replay",
        "its id is denied, and it is signed anew",
        AuthFailure.DENIED,
        lambda d: d.with_header(typ="at+jwt"),
        then=_deny,
    ),
    Hostile(
        "replay",
        "its id is denied, and it lives longer",
        AuthFailure.DENIED,
        lambda d: d.with_claims(exp=NOW + LIFE + 1),
        then=_deny,
    ),
    Hostile(
        "replay",
        "its id is denied, and comes from another key",
        AuthFailure.DENIED,
        lambda _: good("RS256"),
        then=_deny,
    ),
    _case(AuthFailure.UNKNOWN_KEY, "its key is gone", _publish("ES256 second")),
    _case(AuthFailure.UNKNOWN_KEY, "its RSA key is gone", _publish("ES256"), lambda: good("RS256")),
    _case(AuthFailure.UNKNOWN_KEY, "all keys of its issuer are gone", _cluster_gone, clusters),
    _case(AuthFailure.SIGNATURE, "its key was replaced under the same name", _replaced),
    _case(
        AuthFailure.ALGORITHM, "its key is for another algorithm now", _now_for_another_algorithm, lambda: good("RS256")
    ),
    _case(AuthFailure.KEY_ISSUER, "its key speaks for another issuer now", _now_anothers),
    _case(AuthFailure.KEY_ISSUER, "its issuer has keys of its own now", _now_the_clusters),
    _case(AuthFailure.EXPIRED, "it expired, the leeway too", _later(LIFE + LEEWAY)),
    _case(
        AuthFailure.EXPIRED,
        "it expired within the minute for which it was remembered",
        _later(30),
        lambda: good(exp=NOW + 20),
    ),
    _case(AuthFailure.EXPIRED, "it expired long ago", _later(2 * LIFE)),
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
        clusters,
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
        lambda world: setattr(world.clock, "seconds", NOW + 31 * _DAY * 100),
    ),
)
