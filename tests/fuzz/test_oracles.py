"""Each oracle can fail: it finds a defect that is planted in what its target tests."""

import math
from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from tests.fuzz.catalogue import NAMES, load_target


class Planted(NamedTuple):
    """A defect: another function in place of one that targets call, made from it."""

    target: str
    place: str
    defect: Callable[[Any], Any]


def _raise(error: Exception) -> Callable[[Any], Any]:
    def build(_: Any) -> Any:
        def fail(*_: Any, **__: Any) -> Any:
            raise error

        return fail

    return build


def _spoil(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a defect that changes what the function returns."""
    return lambda function: lambda *arguments, **named: change(function(*arguments, **named))


def _always(value: Any) -> Callable[[Any], Any]:
    """Return a defect that asks nothing."""
    return lambda _: lambda *_, **__: value


DEFECTS = [
    Planted("outcomes", "webhook.core.outcomes.decode", _spoil(lambda found: found[1:])),
    Planted("outcomes", "webhook.core.outcomes._describe_fault", _raise(IndexError("7"))),
    Planted("forwarded_certificates", "webhook.authentication.xfcc._check_hash", _always(None)),
    Planted(
        "forwarded_certificates", "webhook.authentication.xfcc._decode_certificate", _spoil(lambda found: found[1:])
    ),
    Planted(
        "http_requests",
        "webhook.server.request_parser.RequestParser.recognize",
        _spoil(lambda found: found and replace(found, traceparent="that of another request")),
    ),
    Planted(
        "http_requests",
        "webhook.server.request_parser.RequestParser.feed_data",
        _spoil(lambda found: (found[0][:1], found[1])),
    ),
    Planted("tokens", "webhook.authentication.jwt._verify_signature", lambda _: _trust),
    Planted("tokens", "webhook.authentication.jwt._check_times", lambda _: lambda claims, *_: claims.get("exp", 0)),
    Planted("certificates", "webhook.authentication.chain_verifier.find_leaf_fault", _always(None)),
    Planted("certificates", "webhook.authentication.client_ca.find_ca_fault", _raise(KeyError("unread"))),
    Planted("policy_documents", "webhook.core.document.rendering._format_scalar", _spoil(lambda text: text.strip('"'))),
    Planted("policy_documents", "webhook.core.document.loading.rules.find_errors", _raise(KeyError("hard"))),
    Planted(
        "admission_reviews",
        "webhook.core.admission.review.respond",
        _spoil(lambda body: body.replace(b'"uid":"', b'"uid":"x')),
    ),
    Planted(
        "node_topologies",
        "webhook.core.scheduling.topology._parse_amounts",
        _spoil(lambda found: dict.fromkeys(found, 0)),
    ),
    Planted("prometheus_answers", "webhook.adapters.node_loads.prometheus.average_with_decay", _always(math.inf)),
    Planted("node_metrics", "webhook.adapters.node_loads.metrics_api.parse_microseconds", _raise(KeyError("at"))),
]


def _trust(token: str, candidates: Any) -> Any:
    from webhook.authentication.jwt import _decode_segment  # noqa: PLC0415  as the code under test reads it

    return _decode_segment(token.split(".")[1]), candidates


def test_every_target_has_a_planted_defect() -> None:
    assert {defect.target for defect in DEFECTS} == set(NAMES)


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: f"{defect.target}: {defect.place.rpartition('.')[2]}")
def test_a_planted_defect_is_found(defect: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    target = load_target(defect.target)
    seeds = target.list_seeds()
    monkeypatch.setattr(defect.place, defect.defect(resolve_name(defect.place)))
    assert any(map(_fails(target.check), seeds))


def _fails(check: Callable[[bytes], None]) -> Callable[[bytes], bool]:
    def fails(data: bytes) -> bool:
        try:
            check(data)
        except Exception:  # noqa: BLE001  any failure of a target counts
            return True
        return False

    return fails
