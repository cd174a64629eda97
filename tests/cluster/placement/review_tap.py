"""Recording proxy in front of a server: requests of the API server and responses, verbatim."""

import base64
import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.cluster.identities import Identities
from tests.cluster.load_balancer import LoadBalancer
from tests.cluster.recording_webhook import Recorder

Json = dict[str, Any]
HALVES = ("mutate", "validate")


@dataclass(frozen=True)
class Exchange:
    """One call: its half, the AdmissionReview, and the response."""

    half: str
    review: Json
    response: Json

    @property
    def object(self) -> Json:
        document: Json = self.review["request"]["object"]
        return document

    @property
    def name(self) -> str:
        metadata = self.object["metadata"]
        return str(metadata.get("name") or metadata.get("generateName", ""))

    @property
    def patch(self) -> list[Json]:
        operations: list[Json] = (
            json.loads(base64.b64decode(self.response["patch"])) if "patch" in self.response else []
        )
        return operations


@dataclass
class Tap:
    """The exchanges since the last `take_exchanges`; the next `lost` calls to the mutating webhook get no response."""

    exchanges: list[Exchange] = field(default_factory=list)
    lost: int = 0

    def take_exchanges(self) -> list[Exchange]:
        exchanges, self.exchanges = self.exchanges, []
        return exchanges


@contextmanager
def tap_calls(load_balancer: LoadBalancer, identities: Identities) -> Iterator[Tap]:
    """Record the calls to the only server behind this load balancer, forwarded with the API server's credentials."""
    [target] = before = load_balancer.targets
    caller = identities.callers["good"]
    assert caller.certificate is not None
    assert caller.token is not None
    context = ssl.create_default_context(cafile=identities.files.folder / "ca.crt")
    context.load_cert_chain(caller.certificate, caller.key)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {caller.token.read_text()}"}
    tap = Tap()

    async def forward(path: str, body: bytes) -> bytes:
        if path == "mutate" and tap.lost:
            tap.lost -= 1
            return b""
        url = f"https://{target.address}/{path}?timeout=10s"
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, data=body, ssl=context, headers=headers) as response,
        ):
            answer = await response.read()
            assert response.status == 200, answer
        if path in HALVES:
            tap.exchanges.append(Exchange(path, json.loads(body), json.loads(answer)["response"]))
        return answer

    try:
        with Recorder(identities.files.pki.paths, forward) as recorder:
            load_balancer.targets = [recorder.address]
            load_balancer.cut()  # else the API server reuses its open connections
            yield tap
    finally:
        load_balancer.targets = before
        load_balancer.cut()
