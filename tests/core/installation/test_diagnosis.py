"""Remedies for an API server that does not call: a network that does not reach is not blamed on its files."""

import pytest

from webhook.core.installation.call_remedies import FLAG, find_remedy

CALL = 'failed calling webhook "a": failed to call webhook: Post "https://podgate.svc:443/mutate?timeout=5s": '


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("dial tcp 10.0.0.7:443: connect: network is unreachable", "cannot reach the server"),
        ("dial tcp 10.0.0.7:443: connect: no route to host", "cannot reach the server"),
        ("dial tcp 10.0.0.7:443: connect: host is down", "cannot reach the server"),
        ("dial tcp 10.0.0.7:443: connect: operation not permitted", "cannot reach the server"),
        ("dial tcp 10.0.0.7:443: i/o timeout", "cannot reach the server"),
        ("dial tcp 10.0.0.7:443: connect: connection timed out", "cannot reach the server"),
        ("dial tcp: lookup podgate.podgate-system.svc on 10.0.0.10:53: server misbehaving", "cannot reach the server"),
        ("dial tcp: lookup podgate.podgate-system.svc: no such host", "cannot reach the server"),
        ("dial tcp 10.0.0.7:443: connect: connection refused", "nothing listens at this address"),
        ("tls: failed to verify certificate: x509: certificate signed by unknown authority", "not trusted"),
        ("remote error: tls: certificate required", FLAG),
        ("EOF", FLAG),
        ("", FLAG),
    ],
)
def test_remedy_is_that_of_the_error(reason: str, words: str) -> None:
    assert words in find_remedy(f"{CALL}{reason}" if reason else "")
