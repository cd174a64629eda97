"""The service page: limits, breaker with its history, refusals, waiting Pods, acts, and text that stays text."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.console.acting import HANDS, make_hands
from tests.console.pages import HOSTILE, check_text
from tests.console.token_serving import serve
from tests.harness.console import PreparedPort, breaker, make_ports, open_console, service, shares
from tests.harness.console_rows import denial, queue_document, waiting_pod
from webhook.console.interface.document_reader import ConsolePorts
from webhook.errors import UserError
from webhook.ports.viewers import ResourceAccess

METRICS = b"""# HELP podgate_outcomes_total Outcomes recorded by breakers.
podgate_outcomes_total{result="ok",service="web",source="Pushed"} 1200.0
podgate_outcomes_total{result="error",service="web",source="Pushed"} 34.0
podgate_outcomes_total{result="ok",service="other",source="Pushed"} 5.0
podgate_outcomes_total{broken
"""


def build_ports(
    *services: Mapping[str, Any], denied: list[dict[str, Any]] | None = None, pods: Any = (), **status: Any
) -> ConsolePorts:
    ports = make_ports(*services, denied=denied, **status)
    assert isinstance(ports.plain, PreparedPort)
    ports.plain.answers["/metrics"] = METRICS
    return replace(ports, leader=PreparedPort({"/queue": queue_document(*pods)}))


async def test_a_service_shows_its_limits_and_those_of_its_pool() -> None:
    pool = {"name": "shared", "members": ["web", "api"], "windows": [{"window": "1h", "resource": "cpu", "hard": "20"}]}
    live = {
        "window": "standing",
        "resource": "pods",
        "hard": 10,
        "used": 11,
        "surge": 2,
        "full": False,
        "enforced": False,
    }
    own = service("web", used=50)
    ports = build_ports({**own, "windows": [*own["windows"], live]}, pools=[pool])
    async with open_console(ports) as client:
        _, page = await client.get("/service/web")
        found = await client.get_json("/api/v1/service/web")
    assert "50 of 50" in page
    assert 'data-until="2026-12-01T04:00:12Z">12s' in page
    assert "pods live at one time" in page
    assert "11 of 10 +2 surge" in page
    assert ">not enforced</span>" in page
    assert "Pool shared, shared by 2 services" in page
    assert "? of 20" in page
    assert (found["service"]["name"], found["pool"]["name"]) == ("web", "shared")


async def test_an_open_breaker_counts_down_in_its_diagram_and_says_what_to_do() -> None:
    opened = breaker("OPEN", 272, since="2026-12-01T03:59:30.000Z", trippedAt="2026-12-01T03:59:30.000Z")
    async with open_console(build_ports(service("web", breaker=opened))) as client:
        _, page = await client.get("/service/web")
    assert 'data-live="diagram/OPEN" data-state="OPEN"' in page
    assert 'data-live="diagram/OPEN/line" data-until="2026-12-01T04:04:32.000Z">4m32s' in page
    assert page.count('data-live="diagram/CLOSED"><rect') == 1, "it is not the present state"
    assert "Roll back what fails" in page
    assert "1200 ok (Pushed), 34 error (Pushed)" in page


async def test_variants_are_shown_with_their_breakers() -> None:
    opened = breaker("OPEN", 272, reason="unschedulable: no node for 300s, 1 Pod")
    variants = [
        {"name": "spot", "weight": 80, "hasBreaker": True, "breaker": opened},
        {"name": "on-demand", "weight": 20, "hasBreaker": False, "breaker": None},
    ]
    async with open_console(build_ports(service("web", shares={"base": None, "variants": variants}))) as client:
        _, page = await client.get("/service/web")
    assert 'data-live="variant/spot/breaker" data-state="OPEN" title="unschedulable: no node for 300s, 1 Pod"' in page
    assert 'data-live="variant/spot/countdown" data-until="2026-12-01T04:04:32.000Z">4m32s' in page
    assert "variant/on-demand" not in page, "the last has none"
    async with open_console(build_ports(service("web"))) as client:
        _, page = await client.get("/service/web")
    assert "Variants" not in page


async def test_each_variant_leads_to_its_acts(tmp_path: Path) -> None:
    divided = service("a b", shares=shares({"spot": breaker("OPEN", 30), "on-demand": None}))
    async with open_console(build_ports(divided), make_hands(tmp_path / "o")) as client:
        _, page = await client.get("/service/a%20b")
        for act in ("open", "close", "reset"):
            assert f'<a href="/service/a%20b/variant/spot/{act}">{act.capitalize()} spot</a>' in page
        assert "variant/on-demand/" not in page
    async with open_console(build_ports(divided)) as client:
        assert "/variant/" not in (await client.get("/service/a%20b"))[1], "this console only reads"


async def test_probes_are_told() -> None:
    probing = breaker("HALF_OPEN", probes={"leased": 2, "succeeded": 1, "needed": 3, "early": 0})
    async with open_console(build_ports(service("web", breaker=probing))) as client:
        _, page = await client.get("/service/web")
    assert "1 of 3 succeeded, 2 without an outcome yet" in page
    assert ">1 of 3 probes</text>" in page


async def test_the_history_is_what_records_saw_and_the_present_state() -> None:
    def seen(second: int, state: str, generation: int) -> dict[str, Any]:
        return denial(
            f"r{second:02d}", second=second, breaker={"state": state, "generation": generation, "reason": state}
        )

    records = [seen(40, "OPEN", 5), seen(30, "OPEN", 5), seen(20, "HALF_OPEN", 4), seen(10, "CLOSED", 1)]
    present = breaker("HALF_OPEN", generation=6, since="2026-12-01T03:59:50.000Z")
    async with open_console(build_ports(service("web", breaker=present), denied=records)) as client:
        found = await client.get_json("/api/v1/service/web")
        _, page = await client.get("/service/web")
    assert [
        (change["state"], change["generation"], change["at"][14:19], change["missed"]) for change in found["changes"]
    ] == [
        ("HALF_OPEN", 6, "59:50", 0),
        ("OPEN", 5, "59:30", 0),
        ("HALF_OPEN", 4, "59:20", 2),
        ("CLOSED", 1, "59:10", 0),
    ]
    assert "2 changes before it that no decision saw" in page


async def test_refusals_are_counted_by_code_and_workload() -> None:
    records = [
        denial("r4", message="the newest reason"),
        denial("r3", codes=["QuotaExceeded", "BreakerOpen"]),
        denial("r2", name="alone", owner=None),
        denial("r1", dryRun=True),
        denial("r0", decision="Allow"),
    ]
    async with open_console(build_ports(service("web"), denied=records)) as client:
        found = await client.get_json("/api/v1/service/web")
        _, page = await client.get("/service/web")
    assert [(code["code"], code["count"]) for code in found["codes"]] == [("QuotaExceeded", 3), ("BreakerOpen", 1)]
    assert [(one["kind"], one["name"], one["count"]) for one in found["workloads"]] == [
        ("ReplicaSet", "web-5f", 2),
        ("Pod", "alone", 1),
    ]
    assert "the newest reason" in page
    assert 'href="/explain?what=replicaset%2Fweb-5f&amp;namespace=shop"' in page


async def test_an_old_denial_is_history_and_no_refusal_of_the_last_minutes() -> None:
    @dataclass(frozen=True)
    class Port:
        name: str = "decisions"

        async def get(self, path: str) -> bytes:
            old = denial("r1", breaker={"state": "CLOSED", "generation": 2})
            return msgspec.json.encode({"decisions": [] if "since=" in path else [old]})

    async with open_console(replace(build_ports(service("web")), decisions=Port())) as client:
        found = await client.get_json("/api/v1/service/web")
        _, page = await client.get("/service/web")
    assert (found["codes"], found["workloads"]) == ([], [])
    assert [change["generation"] for change in found["changes"]] == [2]
    assert "Nobody in the last 15 minutes." in page


async def test_acts_on_services_are_linked_only_where_there_are_hands() -> None:
    async with open_console(build_ports(service("web")), HANDS) as client:
        assert '<a href="/service/web/breaker/open">' in (await client.get("/service/web"))[1]
    async with open_console(build_ports(service("web"))) as client:
        assert "/breaker/open" not in (await client.get("/service/web"))[1].lower()


async def test_a_service_that_is_not_in_the_policy_is_not_found() -> None:
    async with open_console(build_ports(service("web"))) as client:
        status, page = await client.get("/service/nowhere")
        assert status == 404
        assert "the policy in force has no service" in page


async def test_what_cannot_be_read_is_named_and_the_rest_is_shown() -> None:
    broken = PreparedPort({"/api/v1/decisions": UserError("no port there")})
    ports = replace(make_ports(service("web", breaker=None)), decisions=broken)
    async with open_console(ports) as client:
        status, page = await client.get("/service/web")
    assert status == 200
    assert page.count("decisions cannot be read: no port there") == 2, "its notice, and the order"
    assert "No breaker: its policy has no" in page
    assert "no process that releases Pods was found" in page
    assert "as far as is known" in page


async def test_of_five_thousand_services_and_limits_one_page_is_small() -> None:
    own = service("service-0001")
    windows = [{**own["windows"][0], "namespace": f"namespace-{number:04d}".ljust(63, "x")} for number in range(5000)]
    every = [{**own, "windows": windows}, *(service(f"other-{number:04d}") for number in range(4999))]
    records = [
        denial(f"r{n:04d}", owner={"kind": "ReplicaSet", "name": f"web-{n}".ljust(63, "y")}) for n in range(1000)
    ]
    pods = [waiting_pod(f"pod-{number:04d}") for number in range(1000)]
    async with open_console(build_ports(*every, denied=records, pods=pods)) as client:
        _, page = await client.get("/service/service-0001")
    assert len(page.encode()) < 100_000
    assert "The 50 fullest; 4950 more." in page
    assert "990 more workloads" in page
    assert "All 1000 in the queue" in page


@pytest.mark.parametrize("text", HOSTILE)
async def test_text_from_outside_stays_text(text: str) -> None:
    hostile = breaker("OPEN", 60, reason=text, trippedBy=text, trippedAt=text, failed=[text], since=text)
    override = {"until": text, "reason": text, "by": text, "remainingSeconds": 5}
    record = denial(
        "r1",
        namespace=text,
        name=text,
        codes=[text],
        message=text,
        owner={"kind": text, "name": text},
        breaker={"state": text, "generation": 2, "reason": text},
    )
    own = service("web", breaker=hostile, override=override, slaClass=text, modes={text: text})
    own["windows"][0] |= {"window": text, "resource": text, "namespace": text}
    pod = waiting_pod("a", name=text, namespace=text, why=text, cause=text)
    async with open_console(build_ports(own, denied=[record], pods=[pod])) as client:
        status, page = await client.get("/service/web")
        assert status == 200
        check_text(page)


async def test_names_of_foreign_namespaces_are_hidden() -> None:
    records = [
        denial("r2"),
        denial("r1", namespace="lab", owner={"kind": "Job", "name": "secret"}, message="secret-why"),
    ]
    pods = [waiting_pod("own-pod"), waiting_pod("secret", namespace="lab")]
    async with serve(build_ports(service("web"), denied=records, pods=pods)) as served:
        served.reviews.rights.add(("ann", ResourceAccess("list", "pods", "shop")))
        for path in ("/service/web", "/api/v1/service/web"):
            assert (await served.get(path, "token-of-bob"))[0] == 403
            status, page = await served.get(path, "token-of-ann")
            assert (status, "web-5f" in page, "own-pod" in page, "secret" in page) == (200, True, True, False)
        _, page = await served.get("/service/web", "token-of-ann")
        assert "in a namespace that you may not read" in page
