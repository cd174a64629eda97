"""The whole server as a process over real TLS: rejected callers, bad bodies, good bodies."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from tests.harness.identity import Pki, segment
from tests.harness.server_process import POLICY, Files, Serving, pod, run_server
from tests.timeouts import HANG_SECONDS
from webhook.commands.simulator import Ask, build_admission_review, prepare_for_mutate
from webhook.core.admission.decision import Half

GOOD = Ask(pod(), "free", "uid-1")


def review(**changed: Any) -> dict[str, Any]:
    """Return a good AdmissionReview of a mutating call, with some fields of the request changed."""
    document = build_admission_review(GOOD, prepare_for_mutate(GOOD), Half.MUTATE)
    document["request"] |= changed
    return document


def body(document: Any) -> bytes:
    return json.dumps(document).encode()


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[Serving]:
    async with run_server(Files.create(tmp_path), "--body-timeout", "500ms") as running:
        yield running


async def works(server: Serving) -> bool:
    status, text = await server.post("/mutate", body(review()))
    return status == 200 and json.loads(text)["response"]["allowed"]


async def test_calls_without_a_valid_identity_are_rejected(server: Serving, tmp_path: Path) -> None:
    files = server.files
    stranger = Pki.create(tmp_path / "elsewhere") if (tmp_path / "elsewhere").mkdir() is None else None
    assert stranger is not None
    foreign = files.pki.context()
    foreign_client = stranger.client()
    stranger.context(foreign_client)
    stem = f"{foreign_client.certificate.serial_number:x}"
    foreign.load_cert_chain(stranger.folder / f"{stem}.crt", stranger.folder / f"{stem}.key")
    for context, reason in (
        (files.pki.context(), "handshake_no_certificate"),
        (foreign, "handshake_certificate_foreign"),
    ):
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await server.post("/mutate", body(review()), context=context)
        await server.wait_for_metric(f'podgate_refused_calls_total{{reason="{reason}"}}', 1)

    signer = files.signer
    header, payload, _ = signer.token().split(".")
    unsigned = f"{segment({'alg': 'none', 'typ': 'JWT'})}.{payload}"
    for reason, token in (
        ("no_token", ""),
        ("expired", signer.token(now=1_000_000_000)),
        ("audience", signer.token(aud="somebody-else")),
        ("malformed_token", f"{unsigned}."),
        ("algorithm", f"{unsigned}.c2ln"),
        ("malformed_token", f"{header}.{payload}"),
    ):
        line = f'podgate_refused_calls_total{{reason="authentication_{reason}"}}'
        before = await server.metric(line)
        status, text = await server.post("/mutate", body(review()), token=token)
        assert (status, text) == (401, "unauthorized\n"), reason
        assert await server.metric(line) == before + 1, reason
    # A token that is bound to another certificate is rejected.
    status, text = await server.post("/mutate", body(review()), token=files.other.token())
    assert (status, text) == (403, "forbidden\n")
    # A reporter may not call /mutate.
    reporter = files.pki.context(files.pki.client("prober"))
    status, text = await server.post(
        "/mutate", body(review()), token=files.other.token(client_id="p"), context=reporter
    )
    assert (status, text) == (403, "forbidden\n")
    assert await works(server)


BAD_BODIES: dict[str, tuple[bytes, int, str]] = {
    "empty": (b"", 400, "empty body"),
    "not_json": (b"not json", 400, "malformed"),
    "null": (b"null", 400, "Expected `object`"),
    "no_fields": (b"{}", 400, "apiVersion ''"),
    "a_list": (b"[]", 400, "Expected `object`"),
    "wrong_kind": (body({**review(), "kind": "Review"}), 400, "kind 'Review'"),
    "v1beta1": (body({**review(), "apiVersion": "admission.k8s.io/v1beta1"}), 400, "v1beta1"),
    "no_request": (body({**review(), "request": None}), 400, "request is missing"),
    "uid_of_wrong_type": (body(review(uid=7)), 400, "$.request.uid"),
    "uid_empty": (body(review(uid="")), 400, "uid is empty"),
    "no_object": (body(review(object=None)), 400, "object is missing"),
    "object_of_wrong_type": (body(review(object="a Pod")), 400, "Expected `object`"),
    "field_of_wrong_type": (body(review(object={**pod(nodeSelector=5)})), 400, "$.spec.nodeSelector"),
    "nested_too_deeply": (b'{"request":' + b"[" * 100_000, 400, ""),
    "not_utf8": (b"\xff\xfe" + body(review()), 400, "malformed"),
    "eight_megabytes": (body(review(padding="x" * 8_000_000)), 413, "larger than 7340032 bytes"),
}


async def test_bad_reviews_get_a_clear_4xx_and_the_next_good_one_works(server: Serving) -> None:
    for name, (sent, expected, message) in BAD_BODIES.items():
        status, text = await server.post("/mutate", sent)
        assert status == expected, (name, text)
        assert message in text, name
        assert "Traceback" not in text, name
        assert await works(server), name
    missing = body(build_admission_review(GOOD, prepare_for_mutate(GOOD), Half.VALIDATE))
    status, text = await server.post("/validate", missing)
    assert (status, "metadata.uid is missing" in text) == (400, True)
    assert await server.metric('podgate_refused_calls_total{reason="bad_review"}') == len(BAD_BODIES)


async def test_requests_that_are_no_admission_calls_are_rejected(server: Serving) -> None:
    good = body(review())
    assert (await server.post("/mutate", good, headers={"Content-Type": "text/plain"}))[0] == 415
    assert (await server.post("/mutate", good, headers={"Content-Encoding": "gzip"}))[0] == 415
    assert (await server.post("/elsewhere", good))[0] == 404
    headers = {"Authorization": f"Bearer {server.files.signer.token()}"}
    for sent, expected in ((headers, 405), ({}, 401)):  # an unknown caller gets no details
        async with server.session.get(
            f"https://{server.admission}/mutate", ssl=server.context, headers=sent
        ) as response:
            assert response.status == expected
    assert (await server.post("/elsewhere", good, token=""))[0] == 401
    assert await works(server)


async def test_slow_body_is_cut_off(server: Serving) -> None:
    async def drip() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0.05)

    headers = {"Authorization": f"Bearer {server.files.signer.token()}", "Content-Type": "application/json"}
    async with server.session.post(
        f"https://{server.admission}/mutate", data=drip(), ssl=server.context, headers=headers
    ) as response:
        assert response.status == 408
        assert response.headers["Connection"] == "close"
    assert await works(server)


async def test_body_of_an_unauthenticated_caller_is_not_read(server: Serving) -> None:
    """The server answers before any byte of the announced body was sent."""
    reader, writer = await asyncio.open_connection(
        *server.admission.split(":"), ssl=server.context, server_hostname="localhost"
    )
    writer.write(b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 401")
    writer.close()


async def test_a_pod_is_rewritten_counted_refused_and_the_breaker_opens(server: Serving) -> None:
    answers = [await server.create(Ask(pod(), "payments", f"uid-{number}")) for number in range(7)]
    first = answers[0]
    assert first["pod"]["spec"]["schedulerName"] == "podgate-scheduler"
    assert first["pod"]["metadata"]["labels"]["podgate.io/service"] == "payment-api"
    assert first["auditAnnotations"]["client-id"] == "kube-apiserver"
    assert [answer["allowed"] for answer in answers] == [True] * 3 + [False] * 4
    assert [answer["status"]["code"] for answer in answers[3:]] == [429, 429, 429, 503]
    assert answers[3]["status"]["message"].startswith("QuotaExceeded: service payment-api: pods in 1h: hard 3, used 3")
    assert answers[6]["status"]["message"].startswith("BreakerOpen: service payment-api: the breaker is open until ")
    assert not any("patch" in answer for answer in answers)
    again = await server.create(Ask(pod(), "payments", "uid-0"))
    assert again["status"]["message"].startswith("BreakerOpen: "), "it was admitted before the breaker opened"

    status = json.loads((await server.get("/status"))[1])
    service = next(item for item in status["services"] if item["name"] == "payment-api")
    assert service["breaker"]["state"] == "OPEN"
    assert (service["windows"][0]["used"], service["windows"][0]["hard"]) == (3, 3)
    assert await server.metric('podgate_breaker_state{service="payment-api",state="OPEN"}') == 1
    assert await server.metric('podgate_quota_used{resource="pods",service="payment-api",window="1h"}') == 3
    # Another service is not affected.
    assert (await server.create(Ask(pod(), "free", "uid-free")))["allowed"]


async def test_a_dry_run_charges_nothing_and_a_repeated_uid_is_charged_once(server: Serving) -> None:
    for _ in range(5):
        assert (await server.create(Ask(pod(), "payments", "uid-dry", dry_run=True)))["allowed"]
    for _ in range(5):
        assert (await server.create(Ask(pod(), "payments", "uid-same")))["allowed"]
    assert await server.metric('podgate_quota_used{resource="pods",service="payment-api",window="1h"}') == 1


async def test_the_author_of_a_job_set_is_warned_and_nothing_is_charged(server: Serving) -> None:
    template = {"spec": {"schedulerName": "theirs", "containers": [{"name": "c", "image": "i"}]}}
    jobs = [{"name": "workers", "template": {"spec": {"template": template}}}]
    job_set = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "mnist"}}
    resource = {"group": "jobset.x-k8s.io", "version": "v1alpha2", "resource": "jobsets"}
    asked = review(namespace="payments", resource=resource, object={**job_set, "spec": {"replicatedJobs": jobs}})
    status, text = await server.post("/validate", body(asked))
    response = json.loads(text)["response"]
    assert (status, response["allowed"]) == (200, True)
    assert [warning.partition(": service")[0] for warning in response["warnings"]] == [
        "PlacementConflict: Pods of jobset.jobset.x-k8s.io/mnist will be denied"
    ]
    await server.wait_for_metric('podgate_workload_warnings_total{code="PlacementConflict",service="payment-api"}', 1)


async def test_policy_change_applies_to_the_next_pod_and_an_invalid_one_never(server: Serving) -> None:
    loads = 'podgate_policy_reloads_total{result="success"}'
    failures = 'podgate_policy_reloads_total{result="failure"}'
    for number in range(3):
        await server.create(Ask(pod(), "payments", f"uid-{number}"))
    server.files.policy.write_text(POLICY.replace("pods: 3", "pods: 4").replace("podgate-scheduler", "other-scheduler"))
    await server.wait_for_metric(loads, 2)
    answer = await server.create(Ask(pod(), "payments", "uid-3"))
    assert answer["allowed"], "a higher limit keeps the used count"
    assert answer["pod"]["spec"]["schedulerName"] == "other-scheduler"
    assert not (await server.create(Ask(pod(), "payments", "uid-4")))["allowed"]

    server.files.policy.write_text(POLICY.replace("pods: 3", "pds: 3"))
    await server.wait_for_metric(failures, 1)
    assert (await server.get("/readyz"))[0] == 200
    assert "pds" in json.loads((await server.get("/status"))[1])["policy"]["errors"][0]
    answer = await server.create(Ask(pod(), "free", "uid-5"))
    assert answer["allowed"]
    assert not (await server.create(Ask(pod(), "payments", "uid-6")))["allowed"]


async def test_server_without_a_valid_policy_is_alive_but_not_ready(tmp_path: Path) -> None:
    async with run_server(Files.create(tmp_path, "kind: Policy\n")) as server:
        assert (await server.get("/healthz"))[0] == 200
        status, text = await server.get("/readyz")
        assert (status, "no good policy" in text) == (503, True)
        assert (await server.post("/mutate", body(review())))[0] == 503
        server.files.policy.write_text(POLICY)
        await server.wait_for_metric('podgate_policy_reloads_total{result="success"}', 1)
        assert (await server.get("/readyz"))[0] == 200
        assert await works(server)


async def test_an_old_connection_is_retired_after_its_answer(tmp_path: Path) -> None:
    async with run_server(Files.create(tmp_path), "--max-connection-age", "3s") as server:
        headers = {"Authorization": f"Bearer {server.files.signer.token()}", "Content-Type": "application/json"}
        connection_headers = set()
        async with asyncio.timeout(HANG_SECONDS):
            while "close" not in connection_headers:
                async with server.session.post(
                    f"https://{server.admission}/mutate", data=body(review()), ssl=server.context, headers=headers
                ) as response:
                    assert response.status == 200
                    connection_headers.add(response.headers.get("Connection", "keep-alive"))
                await asyncio.sleep(0.05)
        assert connection_headers == {"keep-alive", "close"}


async def test_sigterm_loses_no_call(tmp_path: Path) -> None:
    """Each call during the shutdown is answered, up to a response that closes the connection."""
    async with run_server(Files.create(tmp_path), "--drain", "20s") as server:
        was_retired: asyncio.Event = asyncio.Event()

        async def call_until_closed() -> int:
            answered = 0
            context, token = server.context, server.files.signer.token()
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as session:
                while True:
                    async with session.post(
                        f"https://{server.admission}/mutate", data=body(review()), ssl=context, headers=headers
                    ) as response:
                        assert response.status == 200
                        answered += 1
                        if response.headers.get("Connection") == "close":
                            was_retired.set()
                            return answered

        callers = [asyncio.create_task(call_until_closed()) for _ in range(8)]
        line = 'podgate_reviews_total{decision="Admit",half="mutate",operation="CREATE",service="free"}'
        await server.wait_for_metric(line, 50)
        server.process.terminate()
        await was_retired.wait()
        answered = await asyncio.gather(*callers)
        assert sum(answered) > 50
        assert await asyncio.wait_for(server.process.wait(), HANG_SECONDS) == 0
