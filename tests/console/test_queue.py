"""The queue page: order, causes, pages, filters, namespaces of a viewer, and text that stays text."""

from dataclasses import replace
from typing import Any

import pytest

from tests.console.pages import HOSTILE, check_text
from tests.console.token_serving import serve
from tests.harness.console import PreparedPort, make_ports, open_console, service
from tests.harness.console_rows import depth, queue_document, waiting_pod
from webhook.console.interface.document_reader import ConsolePorts
from webhook.errors import UserError
from webhook.ports.viewers import ResourceAccess


def with_queue(document: Any) -> ConsolePorts:
    return replace(make_ports(service("web")), leader=PreparedPort({"/queue": document}))


async def test_pods_stand_by_class_and_place_with_their_moments() -> None:
    pods = [
        waiting_pod("b", **{"class": "bronze"}, classPlace=1, cause="Behind", expectedAt=None),
        waiting_pod("a2", classPlace=2),
        waiting_pod("a1"),
    ]
    services = [depth("web", 2), depth("batch", 1, "bronze"), depth("idle", 0, "silver", paused="until 05:00Z: INC-1")]
    async with open_console(with_queue(queue_document(*pods, services=services))) as client:
        found = await client.get_json("/api/v1/queue")
        _, page = await client.get("/queue")
    assert [row["name"] for row in found["pods"]] == ["a1", "a2", "b"]
    assert [(line["name"], line["waiting"]) for line in found["classes"]] == [("gold", 2), ("bronze", 1)]
    assert 'data-until="2026-12-01T04:02:09Z">2m09s' in page
    assert "idle is paused until 05:00Z: INC-1" in page
    assert ">unknown</span>" in page


async def test_the_longest_wait_comes_first_if_asked() -> None:
    pods = [waiting_pod("new", since="2026-12-01T03:59:00Z"), waiting_pod("old", since="2026-12-01T03:00:00Z")]
    async with open_console(with_queue(queue_document(*pods))) as client:
        found = await client.get_json("/api/v1/queue?sort=wait")
    assert [row["name"] for row in found["pods"]] == ["old", "new"]


async def test_a_cause_of_a_newer_process_is_shown_as_it_is() -> None:
    pod = waiting_pod("a", cause="Postponed", why="it is told later")
    async with open_console(with_queue(queue_document(pod))) as client:
        _, page = await client.get("/queue")
    assert ">Postponed</span>" in page
    assert "it is told later" in page


async def test_a_pod_that_expires_before_its_turn_says_so() -> None:
    async with open_console(with_queue(queue_document(waiting_pod("a", expiresAt="2026-12-01T04:01:00Z")))) as client:
        _, page = await client.get("/queue")
    assert "before its turn</span>" in page


async def test_many_pods_are_paged_and_a_cut_is_told() -> None:
    pods = [waiting_pod(f"pod-{number:04d}", classPlace=number + 1) for number in range(1000)]
    async with open_console(with_queue(queue_document(*pods, waiting=5000, matching=5000))) as client:
        _, page = await client.get("/queue")
        assert len(page.encode()) < 100_000
        assert page.count('scope="row"') == 50
        assert "Page 1 of 20" in page
        assert "The leader names its first 1,000 Pods" in page
        _, none = await client.get("/queue?namespace=lab")
        assert "No waiting Pod matches" in none
        assert "The leader names its first 1,000 Pods" in none, "the others may match"
        _, last = await client.get("/queue?page=999")
        assert "pod-0999" in last


async def test_filters_ask_the_leader_or_narrow_its_answer() -> None:
    pods = [waiting_pod("a"), waiting_pod("b", namespace="lab"), waiting_pod("c", **{"class": "silver"})]
    ports = with_queue(queue_document(*pods))
    async with open_console(ports) as client:
        found = await client.get_json("/api/v1/queue?namespace=lab")
        assert [row["name"] for row in found["pods"]] == ["b"]
        found = await client.get_json("/api/v1/queue?class=silver")
        assert [row["name"] for row in found["pods"]] == ["c"]
        await client.get("/queue?service=a%26b")
        assert isinstance(ports.leader, PreparedPort)
        assert ports.leader.paths == ["/queue?service=", "/queue?service=a%26b"]
        _, page = await client.get("/queue?class=none")
        assert "No waiting Pod matches" in page


async def test_a_leader_that_is_not_known_is_told_with_a_remedy() -> None:
    stands_by = {"leads": False, "time": "2026-12-01T04:00:00Z", "waitsFor": "podgate-0 leads"}
    ports = make_ports(service("web"))
    assert isinstance(ports.plain, PreparedPort)
    ports.plain.answers["/queue"] = stands_by
    async with open_console(ports) as client:
        status, page = await client.get("/queue")
        assert status == 200
        assert "the process that releases Pods is not known here: podgate-0 leads" in page
        assert "What helps: give --server the plain port of the leader" in page
    async with open_console(with_queue(UserError("no answer", "start one"))) as client:
        _, page = await client.get("/queue")
        assert "no answer" in page
        assert "What helps: start one" in page


@pytest.mark.parametrize("text", HOSTILE)
async def test_text_from_outside_stays_text(text: str) -> None:
    fields = dict.fromkeys(("queue", "class", "service", "namespace", "name", "uid", "owner", "cause", "why"), text)
    document = queue_document(waiting_pod("a", **fields), services=[depth(text, 1, text, paused=text)])
    async with open_console(with_queue(document)) as client:
        for path in ("/queue", "/queue?service=%3Cscript%3E&namespace=%22%3E"):
            check_text((await client.get(path))[1])


async def test_a_viewer_of_one_namespace_sees_its_pods_only() -> None:
    pods = [waiting_pod("own"), waiting_pod("secret", namespace="lab", why="secret-why", cause="ReleaseFails")]
    async with serve(with_queue(queue_document(*pods))) as served:
        served.reviews.rights.add(("bob", ResourceAccess("list", "pods", "shop")))
        for path in ("/queue", "/queue?namespace=lab", "/api/v1/queue?namespace=lab", "/api/v1/queue"):
            status, page = await served.get(path, "token-of-bob")
            assert (status, "secret" in page, "own" in page.replace("know", "")) == (200, False, False), path
        _, page = await served.get("/queue?namespace=shop", "token-of-bob")
        assert "shop/own" in page
        assert "secret" not in page
        assert "Waiting Pods by class" not in page


async def test_who_sees_services_sees_names_of_own_namespaces_only() -> None:
    pods = [waiting_pod("own"), waiting_pod("secret", namespace="lab", why="secret-why", cause="ReleaseFails")]
    async with serve(with_queue(queue_document(*pods))) as served:
        served.reviews.rights.add(("ann", ResourceAccess("list", "pods", "shop")))
        for path in ("/queue", "/api/v1/queue"):
            _, page = await served.get(path, "token-of-ann")
            assert "own" in page
            assert "secret" not in page
        _, page = await served.get("/queue", "token-of-ann")
        assert "of a namespace that you may not read" in page
