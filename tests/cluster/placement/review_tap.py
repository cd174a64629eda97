"""A tap in front of a server: the API server's requests and the responses, verbatim."""

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
    """One call: its half, the AdmissionReview that was sent, the response that came back."""

    half: str
    review: Json
    response: Json

    @property
    def object(self) -> Json:
        found: Json = self.review["request"]["object"]
        return found

    @property
    def name(self) -> str:
        metadata = self.object["metadata"]
        return str(metadata.get("name") or metadata.get("generateName", ""))

    @property
    def patch(self) -> list[Json]:
        found: list[Json] = json.loads(base64.b64decode(self.response["patch"])) if "patch" in self.response else []
        return found


@dataclass
class Tap:
    """What passed since it was last taken, in the order of the answers; `lost`: so many rewrites get lost first."""

    exchanges: list[Exchange] = field(default_factory=list)
    lost: int = 0

    def taken(self) -> list[Exchange]:
        found, self.exchanges = self.exchanges, []
        return found


@contextmanager
def tapped(load_balancer: LoadBalancer, identities: Identities) -> Iterator[Tap]:
    """Stand between the API server and the one server behind this load balancer, and call as the API server does."""
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
            session.post(url, data=body, ssl=context, headers=headers) as got,
        ):
            answer = await got.read()
            assert got.status == 200, answer
        if path in HALVES:
            tap.exchanges.append(Exchange(path, json.loads(body), json.loads(answer)["response"]))
        return answer

    try:
        with Recorder(identities.files.pki.paths, forward) as recorder:
            load_balancer.targets = [recorder.address]
            load_balancer.cut()  # else the API server would go on with the connections that it has
            yield tap
    finally:
        load_balancer.targets = before
        load_balancer.cut()
