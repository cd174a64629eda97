"""Reports of outcomes to the servers, as a gateway sends them."""

import http.client
import json
import ssl
import time
from collections.abc import Sequence
from typing import Any

from tests.chaos.api_calls import classify
from tests.chaos.history import Act
from tests.chaos.lab import Lab
from tests.chaos.record import Record

_TIMEOUT_SECONDS = 3.0


class OutcomeReporter:
    """The reporter of the identities, who reaches the servers as the API servers do."""

    def __init__(self, lab: Lab, record: Record) -> None:
        caller = lab.identities.callers["reporter"]
        assert caller.certificate is not None
        assert caller.token is not None
        self._record = record
        self._port = lab.plane.load_balancers["good"].port
        self._token = caller.token.read_text()
        self._context = ssl.create_default_context(cafile=lab.identities.files.folder / "ca.crt")
        self._context.load_cert_chain(caller.certificate, caller.key)

    def report(self, service: str, outcomes: Sequence[Any]) -> None:
        asked_at, code, message = time.time(), 0, ""
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._port, context=self._context, timeout=_TIMEOUT_SECONDS
        )
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        try:
            connection.request("POST", "/v1/outcomes", json.dumps(outcomes), headers)
            response = connection.getresponse()
            code, message = response.status, response.read().decode(errors="replace")[:500]
        except (OSError, http.client.HTTPException) as error:
            message = f"{type(error).__name__}: {error}"
        finally:
            connection.close()
        failed = sum(not outcome["ok"] for outcome in outcomes)
        self._record.add_act(
            Act(
                at=asked_at,
                answered_at=time.time(),
                act="report",
                kind="Outcome",
                namespace="",
                name=service,
                outcome=classify(code, message),
                code=code,
                message="" if code == 200 else message,
                details={"outcomes": len(outcomes), "failed": failed},
            )
        )
