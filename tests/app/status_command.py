"""Helpers of the `status_command` tests that other tests use, too."""

from contextlib import AbstractContextManager

import msgspec

from tests.harness.canned_http import serve_answers
from tests.harness.records import AT_US, look, policy
from webhook.core.breaker import State
from webhook.core.quota import Use
from webhook.core.reporting.status import (
    ServerStatus,
    render_server_status,
)

DOCUMENT = msgspec.json.encode(
    render_server_status(
        ServerStatus(
            version="0.1.0",
            now_us=AT_US,
            wall_us=AT_US,
            policy=policy("payment-api", "ledger"),
            snapshots={"payment-api": look(Use("1m", "pods", 37, 50), state=State.CLOSED)},
        )
    )
)


def plain_port(body: bytes = DOCUMENT, code: int = 200) -> AbstractContextManager[str]:
    return serve_answers({"/status": (code, body)})
