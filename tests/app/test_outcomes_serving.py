"""Reporters of a real server: permissions, responses, and effects on breakers."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.harness.raw_http import eventually, head, line, status
from tests.harness.server_process import Files, Serving, pod, run_server
from tests.redis_servers import RedisServer
from tests.redis_servers.inventory import names
from webhook.commands.simulator import Ask

pytest_plugins = ("tests.redis_servers.fixtures",)

EDGE = "edge"
PATH = "/v1/outcomes"
THRESHOLDS = "errorRate: {interval: 200ms, consecutive: 1, minimumOutcomes: 3}, openFor: 10m"
POLICY = f"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
pools:
- {{name: shared, windows: [{{window: 1h, hard: {{pods: 1000}}}}]}}
defaults:
  breaker: {{outcomes: {{source: Pushed, reporters: [{EDGE}]}}, {THRESHOLDS}}}
services:
- {{name: web, pool: shared, match: {{namespaces: [web]}}}}
- {{name: api, match: {{namespaces: [api]}}}}
- name: theirs
  pool: shared
  match: {{namespaces: [theirs]}}
  breaker: {{outcomes: {{reporters: [their-edge]}}}}
- {{name: quiet, match: {{namespaces: [quiet]}}, modes: {{breaker: Disabled}}}}
- {{name: deaf, match: {{namespaces: [deaf]}}, breaker: null}}
"""
BAD = {"ok": False, "latency": 0.1}

pytestmark = pytest.mark.asyncio(loop_scope="module")  # the event loop of the shared server's session


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Serving]:
    files = Files.create(tmp_path_factory.mktemp("server"), POLICY)
    async with run_server(files, "--max-in-flight", "8", "--body-timeout", "20s") as running:
        yield running


async def post(server: Serving, path: str, body: Any, client_id: str = EDGE, **headers: str) -> tuple[int, str]:
    """Make a call with the reporter's certificate and token."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    context = server.files.pki.context(server.files.pki.client("prober"))
    token = server.files.other.token(client_id=client_id)
    return await server.post(path, raw, token=token, context=context, headers=headers)


async def push(server: Serving, *outcomes: dict[str, Any], client_id: str = EDGE) -> dict[str, Any]:
    code, text = await post(server, PATH, list(outcomes), client_id)
    assert code == 200, text
    answer: dict[str, Any] = json.loads(text)
    return answer


def outcome(service: str, **fields: Any) -> dict[str, Any]:
    return {"service": service, **BAD, **fields}


async def state(server: Serving, service: str) -> str:
    services = json.loads((await server.get("/status"))[1])["services"]
    [service_status] = [each for each in services if each["name"] == service]
    return str(service_status["breaker"]["state"])


async def trip(server: Serving, service: str, client_id: str = EDGE, **fields: Any) -> None:
    """Push errors of a service until its breaker opens: earlier outcomes are evaluated by then."""

    async def is_open_after_push() -> bool:
        await push(server, *[outcome(service, **fields)] * 5, client_id=client_id)
        return await state(server, service) == "OPEN"

    await eventually(is_open_after_push)


async def test_a_batch_of_errors_opens_the_breaker_and_its_pods_are_refused_with_the_reason(tmp_path: Path) -> None:
    async with run_server(Files.create(tmp_path, POLICY)) as server:
        assert await push(server, *[outcome("api")] * 4) == {"accepted": 4, "refused": []}
        await trip(server, "api")
        refused = await server.create(Ask(pod(), "api", "uid-1"))
        assert (refused["allowed"], refused["status"]["code"]) == (False, 503)
        assert "errorRate: >= 95% in each of 1 intervals of 200ms, " in refused["status"]["message"]
        assert (await server.create(Ask(pod(), "web", "uid-2")))["allowed"]
        await server.wait_for_metric('podgate_outcomes_total{result="error",service="api",source="Pushed"}', 4)
        opened = 'podgate_breaker_transitions_total{from="CLOSED",reason="errorRate",service="api",to="OPEN"}'
        await server.wait_for_metric(opened, 1)


async def test_errors_pushed_to_one_server_of_a_redis_open_the_breaker_for_the_other_too(
    tmp_path: Path, shared_redis: Callable[[str], RedisServer]
) -> None:
    files = Files.create(tmp_path, POLICY)
    shared = ("--store", shared_redis(names()[0]).url, "--store-deadline", "30s")
    async with run_server(files, *shared) as first, run_server(files, *shared) as second:
        await trip(first, "api")
        assert await state(second, "api") == "OPEN"
        refused = await second.create(Ask(pod(), "api", "uid-1"))
        assert (refused["allowed"], refused["status"]["code"]) == (False, 503)
        assert "errorRate: >= 95%" in refused["status"]["message"]


async def test_reporter_cannot_trip_a_service_that_does_not_list_it(server: Serving) -> None:
    assert (await server.create(Ask(pod(), "theirs", "uid-theirs")))["allowed"]
    refused_before = await server.metric('podgate_outcomes_refused_total{reason="notNamed"}')
    mixed = [outcome("web"), outcome("theirs"), outcome("theirs", uid="uid-theirs"), outcome("web", uid="uid-theirs")]
    answer = await push(server, *mixed * 5)
    assert (answer["accepted"], [each["index"] for each in answer["refused"]][:4]) == (10, [1, 2, 5, 6])
    assert {each["service"] for each in answer["refused"]} == {"theirs"}
    await trip(server, "web")
    assert await state(server, "theirs") == "CLOSED"
    assert (await server.create(Ask(pod(), "theirs", "uid-theirs-2")))["allowed"]
    assert await server.metric('podgate_outcomes_total{result="error",service="theirs",source="Pushed"}') == 0
    assert await server.metric('podgate_outcomes_refused_total{reason="notNamed"}') == refused_before + 10
    # Outcomes from the reporter that the policy names open the breaker.
    await trip(server, "theirs", client_id="their-edge")


async def test_services_without_outcomes_of_the_reporter_are_indistinguishable(server: Serving) -> None:
    answers = set()
    for service in ("theirs", "deaf", "ghost", "kube-system"):
        code, text = await post(server, PATH, [outcome(service)])
        assert code == 403
        answers.add(text.replace(service, "SERVICE"))
    remedy = "check the name, or have the policy list it in breaker.outcomes.reporters"
    assert answers == {f"[0].service: SERVICE: no service of this name accepts outcomes from 'edge': {remedy}\n"}
    assert await server.metric('podgate_refused_calls_total{reason="not_a_reporter"}') >= 4


async def test_disabled_breaker_accepts_outcomes_and_counts_none(server: Serving) -> None:
    dropped = 'podgate_outcomes_dropped_total{reason="disabled",service="quiet"}'
    before = await server.metric(dropped)
    assert await push(server, *[outcome("quiet")] * 5) == {"accepted": 5, "refused": []}
    assert await server.metric(dropped) == before + 5


async def test_outcomes_of_another_generation_change_nothing(tmp_path: Path) -> None:
    async with run_server(Files.create(tmp_path, POLICY)) as server:
        await push(server, *[outcome("web", generation=7)] * 50)
        await server.wait_for_metric('podgate_outcomes_total{result="error",service="web",source="Pushed"}', 50)
        await trip(server, "api")
        assert await state(server, "web") == "CLOSED"
        await trip(server, "web", generation=0)


@pytest.mark.parametrize(
    ("body", "expected", "message"),
    [
        (b"", 400, "(body): not JSON: "),
        (b'{"service": "web", "ok": true, "latency": 0}', 400, "(body): Expected `array`, got `object`: send a JSON"),
        (
            [outcome("web"), outcome("web", latency=-1)],
            400,
            "[1].latency: -1: Expected `float` >= 0.0: write seconds from 0 to",
        ),
        (
            [outcome("web", colour="red")],
            400,
            '[0].colour: "red": contains unknown field: the fields are service, ok, ',
        ),
        (
            [outcome("web"), {"service": "web", "latency": 1}],
            400,
            "[1].ok: (absent): missing required field: write true",
        ),
        (
            [outcome("web")] * 10_001,
            400,
            "(body): Expected `array` of length <= 10000: send a JSON list of at most 10000",
        ),
        (b"[" + b" " * 8_000_000 + b"]", 413, "the body is larger than 7340032 bytes"),
    ],
    ids=["empty", "no list", "negative latency", "unknown field", "missing field", "too many", "too large"],
)
async def test_invalid_body_is_rejected_as_a_whole_with_its_error(
    server: Serving, body: Any, expected: int, message: str
) -> None:
    before = await server.get("/metrics")
    code, text = await post(server, PATH, body)
    assert (code, text[: len(message)]) == (expected, message)
    after = await server.get("/metrics")
    counted = [[row for row in text.splitlines() if row.startswith("podgate_outcomes_")] for _, text in (before, after)]
    assert counted[0] == counted[1]
    assert (await push(server, outcome("quiet")))["accepted"] == 1


async def test_unauthorized_reporters_and_invalid_requests_are_rejected(server: Serving) -> None:
    good = [outcome("quiet")]
    raw = json.dumps(good).encode()
    by_role = 'podgate_refused_calls_total{reason="authentication_role"}'
    before = await server.metric(by_role)
    assert await server.post(PATH, raw) == (403, "forbidden\n")  # the API server's own certificate and token
    assert await server.metric(by_role) == before + 1
    reporter = server.files.pki.context(server.files.pki.client("prober"))
    assert await server.post(PATH, raw, token="", context=reporter) == (401, "unauthorized\n")
    assert await server.post(PATH, raw, token=server.files.signer.token(), context=reporter) == (403, "forbidden\n")
    assert await server.post(PATH, raw, token=server.files.other.token(client_id=EDGE)) == (403, "forbidden\n")
    for path in ("/mutate", "/validate", "/validate-policy"):
        assert await post(server, path, good) == (403, "forbidden\n")
    for path in (f"{PATH}/", "/v1/outcome", "/v1"):
        assert (await post(server, path, good))[0] == 404
    assert (await post(server, PATH, good, **{"Content-Type": "text/plain"}))[0] == 415
    assert (await post(server, PATH, good, **{"Content-Encoding": "gzip"}))[0] == 415
    headers = {"Authorization": f"Bearer {server.files.other.token(client_id=EDGE)}"}
    async with server.session.get(f"https://{server.admission}{PATH}", ssl=reporter, headers=headers) as response:
        assert response.status == 405
    assert (await post(server, PATH, good))[0] == 200


async def test_slow_reporters_leave_room_for_reviews_and_fast_reporters(server: Serving) -> None:
    files = server.files
    token = files.other.token(client_id=EDGE)
    start = f"POST {PATH} HTTP/1.1"
    reporter = files.pki.context(files.pki.client("prober"))
    as_reporter = Serving(files, server.process, server.admission, server.plain, server.session, reporter, server.log)
    async with line(as_reporter) as first, line(as_reporter) as second:
        for slow in (first, second):  # a quarter of the eight calls that may be in flight
            slow.send(head(server, "Content-Length: 2", start=start, token=token), b"[")
        await server.wait_for_metric("podgate_calls_in_flight", 2)
        assert (await server.create(Ask(pod(), "quiet", "uid-quiet")))["allowed"]
        assert (await push(server, outcome("quiet")))["accepted"] == 1
        assert status(await first.answer()) == 503
        second.send(b"]")
        assert status(await second.answer()) == 200
    assert await server.metric('podgate_refused_calls_total{reason="body_displaced"}') == 1


async def test_without_a_policy_reporters_are_asked_to_retry(tmp_path: Path) -> None:
    files = Files.create(tmp_path)
    files.policy.unlink()
    async with run_server(files) as without_policy:
        assert await post(without_policy, PATH, [outcome("web")]) == (503, "no good policy has been loaded yet\n")
