"""Acts of the console, each by its form: the command line that it shows, what is written, and what it says."""

import asyncio
import shlex
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.command_runner import podgate
from tests.console.acting import HASH, Painter, PreparedCluster, install_act, make_hands
from tests.console.token_serving import SAME_SITE, serve
from tests.harness.console import ConsoleClient, breaker, make_ports, open_console, service, shares
from webhook.console import application
from webhook.console.access import is_loopback_host
from webhook.console.application import ConsoleParts
from webhook.console.interface.act import ConsoleAct, Hands
from webhook.console.interface.document_reader import DocumentReader
from webhook.console.local_access import LocalAccess
from webhook.console.registry import list_acts

TERMS = {"for": "30m", "reason": "INC-1 it's <b>", "combine": "add"}
KEPT = dict.fromkeys(("placement", "resources", "quota", "breaker", "scheduling", "rules"), "unchanged")
ROOM = {"window": "1m", "hard": "pods=100 cpu=40"}
DIVIDED = service("web", shares=shares({"spot": breaker("OPEN", 30), "on-demand": None}))
OVERRIDES: list[tuple[str, dict[str, str], dict[str, Any]]] = [
    ("breaker/open", {}, {"breaker": "ForcedOpen"}),
    ("breaker/close", {}, {"breaker": "ForcedClosed"}),
    ("breaker/reset", {}, {"breaker": "Automatic"}),
    ("variant/spot/open", {}, {"variant": "spot", "breaker": "ForcedOpen"}),
    ("variant/spot/close", {}, {"variant": "spot", "breaker": "ForcedClosed"}),
    ("variant/spot/reset", {}, {"variant": "spot", "breaker": "Automatic"}),
    ("quota/grant", ROOM, {"grant": [{"window": "1m", "hard": {"pods": "100", "cpu": "40"}}]}),
    ("override", KEPT | {"factor": "3", "quota": "Audit"}, {"quotaFactor": 3, "modes": {"quota": "Audit"}}),
    ("queue/pause", {}, {"queue": "Paused"}),
    ("queue/resume", {}, {"queue": "Running"}),
]


async def act_on(client: ConsoleClient, path: str, form: dict[str, str]) -> tuple[list[str], str]:
    """Go through an act; return the words of the command that it shows, and what it says in the end."""
    sent = {**form, "form_token": client.form_token}
    status, page = await client.post(path, sent)
    assert status == 200, page
    command = unescape(page.partition('<code id="command">')[2].partition("</code>")[0])
    status, place = await client.post(path, {**sent, "confirmed": "yes"})
    assert status == 303, place
    _, page = await client.get(place)
    return shlex.split(command), unescape(page.partition('<p class="notice" role="status">')[2].partition("</p>")[0])


def read_entries(file: Path) -> list[dict[str, Any]]:
    """Return what is written, less its times."""
    entries: list[dict[str, Any]] = yaml.safe_load(file.read_text())
    return [{name: value for name, value in entry.items() if name not in {"until", "resetAt"}} for entry in entries]


@pytest.mark.parametrize(("path", "form", "fields"), OVERRIDES)
async def test_an_act_writes_what_its_command_line_writes(
    path: str, form: dict[str, str], fields: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "overrides.yaml"
    async with open_console(make_ports(DIVIDED), make_hands(file)) as client:
        command, said = await act_on(client, f"/service/web/{path}", {**TERMS, **form})
    written = read_entries(file)
    [entry] = written
    assert entry.pop("by")
    assert entry == {"service": "web", "reason": TERMS["reason"], **fields}
    assert f"written to {file}; the service and its fields are not checked" in said
    file.unlink()
    done = await asyncio.to_thread(podgate, *command[1:])
    assert done.code == 0, done.err
    [again] = read_entries(file)
    assert {**again, "by": ""} == {**entry, "by": ""}


@pytest.mark.parametrize("combine", ["add", "merge", "replace"])
async def test_an_act_combines_as_its_command_line_does(combine: str, tmp_path: Path) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    terms = ("--mode", "quota=Warn", "--for", "1h", "--reason", "a", "--overrides")
    for file in (first, second):
        done = await asyncio.to_thread(podgate, *("override", "web", *terms), file)
        assert done.code == 0, done.err
    form = {**TERMS, **KEPT, "factor": "3", "combine": combine}
    async with open_console(make_ports(DIVIDED), make_hands(first)) as client:
        command, _ = await act_on(client, "/service/web/override", form)
    words = [str(second) if word == str(first) else word for word in command[1:]]
    assert (await asyncio.to_thread(podgate, *words)).code == 0
    assert read_entries(first) == read_entries(second)
    assert len(read_entries(first)) == (2 if combine == "add" else 1)


async def test_all_overrides_of_a_service_are_ended(tmp_path: Path) -> None:
    file = tmp_path / "overrides.yaml"
    async with open_console(make_ports(DIVIDED), make_hands(file)) as client:
        await act_on(client, "/service/web/queue/pause", TERMS)
        command, said = await act_on(client, "/service/web/override/end", {})
        assert command == ["podgate", "override", "web", "--clear", "--overrides", str(file)]
        assert said.startswith("web: ended: queue: Paused until ")
        _, said = await act_on(client, "/service/web/override/end", {})
        assert said == f"web: there was no override in {file}"
    assert yaml.safe_load(file.read_text()) == []


@pytest.mark.parametrize(
    ("path", "form", "error"),
    [
        ("/service/web/override", KEPT | {"factor": ""}, "nothing to do"),
        ("/service/web/override", KEPT | {"factor": "0"}, 'quotaFactor: "0": not a number'),
        ("/service/web/breaker/open", {"for": "721h"}, "For: '721h': longer than 720h"),
        ("/service/web/breaker/open", {"for": "soon"}, "For: 'soon'"),
        ("/service/web/breaker/open", {"reason": "a\u202eb"}, "Reason: a\\u202eb: has characters that cannot be seen"),
        ("/service/web/breaker/open", {"reason": "a" * 501}, "reason"),
        ("/service/gone/breaker/open", {}, "no service 'gone'"),
        ("/service/gone/variant/spot/open", {}, "no service 'gone'"),
        ("/service/web/variant/--list/open", {}, "service web has no variant '--list' with a breaker"),
        ("/service/web/variant/on-demand/close", {}, "service web has no variant 'on-demand' with a breaker"),
        ("/service/web/variant/spot/open", {"for": "721h"}, "For: '721h': longer than 720h"),
        ("/service/--list/breaker/open", {}, "no service '--list'"),
        ("/service/web/quota/grant", {"window": "1m", "hard": "pods"}, "Amount to add: 'pods': not RESOURCE=AMOUNT"),
        ("/service/web/quota/grant", {"window": "1m", "hard": "pods=1 pods=2"}, "Amount to add: pods is given twice"),
        ("/queue/release", {"pod": "web"}, "'web': not NAMESPACE/POD"),
        ("/queue/release", {"pod": "--help/x"}, "'--help/x': not NAMESPACE/POD"),
        ("/queue/drop", {"pod": "--help/x"}, "'--help/x': not NAMESPACE/POD"),
        ("/queue/drop", {"pod": "shop/x?dryRun=All"}, "'shop/x?dryRun=All': not NAMESPACE/POD"),
        ("/queue/drop", {"pod": "shop/web/x"}, "'shop/web/x': not NAMESPACE/POD"),
    ],
)
async def test_a_bad_form_is_refused_before_anybody_is_asked(
    path: str, form: dict[str, str], error: str, tmp_path: Path
) -> None:
    file = tmp_path / "overrides.yaml"
    async with open_console(make_ports(DIVIDED), make_hands(file, PreparedCluster())) as client:
        status, page = await client.post(path, {**TERMS, **form, "form_token": client.form_token})
    assert status == 400
    assert f"Nothing was done: {error}" in unescape(page)
    assert not file.exists()


async def test_a_pod_is_released_by_its_uid_and_dropped_with_a_reason(tmp_path: Path) -> None:
    file, cluster = tmp_path / "overrides.yaml", PreparedCluster()
    pod = {"pod": "shop/web-x7", "reason": "INC-1"}
    async with open_console(make_ports(DIVIDED), make_hands(file, cluster)) as client:
        command, said = await act_on(client, "/queue/release", {**TERMS, **pod})
        options = ["--for", "30m", "--reason", "INC-1", "--context", "here", "--overrides", str(file)]
        assert command == ["podgate", "queue", "release", "shop/web-x7", *options]
        assert "releasePods: [{namespace: shop, name: web-x7, uid: uid-1}]" in said
        command, said = await act_on(client, "/queue/drop", pod)
        assert command == ["podgate", "queue", "drop", "shop/web-x7", "--reason", "INC-1", "--context", "here"]
        assert said == "shop/web-x7 (uid uid-1) of web: deleted; the reason is not recorded: no right"
        runs = {**TERMS, "pod": "shop/runs", "form_token": client.form_token, "confirmed": "yes"}
        status, page = await client.post("/queue/release", runs)
        assert (status, "Nothing was done: pod shop/runs: does not wait" in page) == (400, True)
    assert [entry["releasePods"][0]["uid"] for entry in read_entries(file)] == ["uid-1"]
    assert cluster.asked == [("shop", "web-x7", "INC-1")]


@pytest.mark.parametrize(
    ("name", "form", "words", "asked"),
    [
        ("promote", {}, [], ("promote",)),
        ("retry", {}, [], ("retry",)),
        ("pause", {"reason": "INC-1"}, ["--reason", "INC-1"], ("pause", "INC-1")),
        ("rollback", {"reason": "INC-1"}, ["--reason", "INC-1"], ("rollback", "None", "INC-1")),
        (
            "rollback",
            {"reason": "INC-1", "to": "7"},
            ["--to", "7", "--reason", "INC-1"],
            ("rollback", "7", "INC-1"),
        ),
    ],
)
async def test_a_rollout_is_changed(
    name: str, form: dict[str, str], words: list[str], asked: tuple[str, ...], tmp_path: Path
) -> None:
    cluster = PreparedCluster()
    async with open_console(make_ports(DIVIDED), make_hands(tmp_path / "none", cluster)) as client:
        command, said = await act_on(client, f"/policy/{name}", form)
    assert command == ["podgate", "policy", name, *words, "--context", "here", "--server", "http://s"]
    assert said.endswith(f"; in force: {HASH}; warning: it has mistakes")
    assert cluster.asked == [asked]


async def test_without_a_cluster_there_is_no_act_on_it(tmp_path: Path) -> None:
    async with open_console(make_ports(DIVIDED), make_hands(tmp_path / "none")) as client:
        for path in ("/queue/release", "/queue/drop", "/policy/promote", "/policy/rollback"):
            assert (await client.get(path))[0] == 404
        assert (await client.get("/service/web/breaker/open"))[0] == 200


def fill(act: ConsoleAct) -> str:
    return act.path.format(name="web", variant="spot")


async def test_every_form_works_by_keyboard_and_names_its_fields(tmp_path: Path) -> None:
    """Each field has a label, and a hint is tied to it; a link may fill a field."""
    async with open_console(make_ports(DIVIDED), make_hands(tmp_path / "o", PreparedCluster())) as client:
        for act in list_acts():
            status, page = await client.get(fill(act) + "?reason=%3Cscript%3Ealert%281%29%3C%2Fscript%3E")
            assert status == 200, act.name
            assert "<script>alert" not in page
            for field in act.fields:
                assert f'<label for="field-{field.name}">' in page, act.name
                assert f'name="{field.name}"' in page, act.name


def list_writing_routes(hands: Hands | None) -> set[tuple[str, str]]:
    """Return method and path of every route of a console that is not a read."""
    access = LocalAccess(lambda: 0.0)
    parts = ConsoleParts(DocumentReader(make_ports(), lambda: 0), access, is_loopback_host, hands)
    routes = application.build_application(parts).router.routes()
    found = {(route.method, route.resource.canonical) for route in routes if route.resource is not None}
    assert len(found) > 3
    return {(method, path) for method, path in found if method not in {"GET", "HEAD"}}


async def test_a_console_that_only_reads_has_no_route_that_takes_anything(tmp_path: Path) -> None:
    """All routes are enumerated, so that a new one cannot be forgotten."""
    acts = {("POST", act.path) for act in list_acts()}
    assert list_writing_routes(make_hands(tmp_path / "o", PreparedCluster())) == acts
    assert list_writing_routes(None) == set()


async def test_a_viewer_of_a_console_that_only_reads_gets_no_form() -> None:
    async with serve() as served:
        headers = {**SAME_SITE, "Authorization": "Bearer token-of-ann"}
        for act in list_acts():
            for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
                async with served.session.request(method, served.url + fill(act), headers=headers) as answer:
                    assert answer.status == 404, (act.name, method)


async def test_every_form_is_refused_from_elsewhere(tmp_path: Path) -> None:
    """Without the token of the session, from another site or by another name of the host nothing is even planned."""
    file, cluster = tmp_path / "o", PreparedCluster()
    foreign = (
        {"Host": "podgate.evil.example"},
        {"Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    )
    async with open_console(make_ports(DIVIDED), make_hands(file, cluster)) as client:
        for act in list_acts():
            form = {**TERMS, **KEPT, **ROOM, "factor": "2", "pod": "shop/web-x7", "to": "7", "confirmed": "yes"}
            assert (await client.post(fill(act), form))[0] == 403, act.name
            for headers in foreign:
                sent = {**form, "form_token": client.form_token}
                assert (await client.post(fill(act), sent, **headers))[0] == 403, (act.name, headers)
    assert (file.exists(), cluster.asked) == (False, [])


async def test_a_page_leads_to_the_acts_that_begin_on_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install_act(monkeypatch, Painter())
    [act] = application.list_acts()
    linked = replace(act, name="all", path="/paint", title="Paint all", link="Paint all")
    monkeypatch.setattr(application, "list_acts", lambda: (act, linked))
    async with open_console(make_ports(DIVIDED), make_hands(tmp_path / "o")) as client:
        _, page = await client.get("/")
    assert '<li><a href="/paint">Paint all</a></li>' in page
    assert "/service/web/paint" not in page
    async with open_console(make_ports(DIVIDED)) as client:
        assert "Paint all" not in (await client.get("/"))[1]
