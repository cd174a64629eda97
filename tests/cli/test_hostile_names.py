"""Nothing that a tenant writes moves the cursor, forges a line or hides text: on any page, in any log line or Event."""

import inspect
import io
import json
import logging
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any, get_type_hints

import click
import msgspec
import pytest
import yaml

from tests.cli.command_runner import podgate
from tests.core.reporting.status import snapshot
from tests.harness.canned_http import serve_answers
from tests.harness.hostile_values import ALONE, FORGED, HOSTILE, TIME, hostile
from tests.harness.records import override
from webhook.adapters.kubernetes.events.event_object import NOTE_BYTES_MAX, EventType, Happening, Regarding
from webhook.adapters.kubernetes.events.observer import make_transition_event
from webhook.adapters.logs import JsonLines, Logs
from webhook.adapters.logs.lines import StandardLogging
from webhook.cli import simulation_page
from webhook.commands import pages as output
from webhook.commands.pages import (
    check_page,
    decisions_page,
    diff,
    explain_view,
    first_policy_page,
    pod_report_page,
    status_page,
    suggestion_document,
    suggestion_page,
    table,
    webhooks_page,
    yaml_page,
    yaml_text,
)
from webhook.commands.pages import status_page as controller_page
from webhook.commands.pages import yaml_text as yaml_stream
from webhook.core.breaker import State, Transition
from webhook.core.diagnosis import Report
from webhook.core.kubernetes.admission_request import ResponseStatus, respond
from webhook.core.reporting.decision_record import DecisionRecord
from webhook.core.reporting.node_document import NodeDocument
from webhook.core.reporting.queue_document import QueueDocument
from webhook.core.reporting.status import (
    ControllerStatus,
    OverridesStatus,
    render_controller_status,
    render_server_status,
)
from webhook.policy_tests import results
from webhook.policy_tests.runner import CaseResult
from webhook.ports import Observer
from webhook.server.http_messages import build_json_response

Json = dict[str, Any]
Page = Callable[..., Any]
DOCUMENT = {HOSTILE: HOSTILE, "list": [HOSTILE, {"inner": HOSTILE}], "text": f"{HOSTILE}\n{HOSTILE}"}
_KEPT = ("20", "19")  # times begin with their year


@pytest.fixture(autouse=True)
def no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pages style nothing, and let nothing be stripped: each escape sequence left is a tenant's."""
    monkeypatch.setattr(click, "style", lambda text, **_: text)
    monkeypatch.setattr(click.utils, "should_strip_ansi", lambda *_: False)


def poison(value: Any) -> Any:
    """Return a document with each text but times replaced by a hostile one."""
    if isinstance(value, dict):
        return {key: poison(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [poison(inner) for inner in value]
    return HOSTILE if isinstance(value, str) and not value.startswith(_KEPT) else value


def decision() -> Json:
    found: Json = json.loads(msgspec.json.encode(hostile(DecisionRecord)))
    return {**found, "at": TIME, "workload": ""}


def status() -> Json:
    overrides = OverridesStatus("file", ("error",), {"payment-api": (override(),)})
    document = render_server_status(snapshot(overrides=overrides, errors=("error",), not_ready=("no",)))
    named = poison(document)
    for service in named["services"]:
        service["modes"] = dict.fromkeys(service["modes"], HOSTILE)
    return {**named, "time": TIME}  # type: ignore[no-any-return]


def controller() -> Json:
    document = render_controller_status(hostile(ControllerStatus))
    document["certificates"] = {"keptBy": HOSTILE, "secrets": {HOSTILE: HOSTILE}, "errors": [HOSTILE]}
    return document


def webhooks() -> Json:
    labels = [{"key": HOSTILE, "operator": "In", "values": [HOSTILE]}]
    calls = [{"service": HOSTILE, "call": "Made", "reason": HOSTILE}]
    namespaces = {"names": [HOSTILE], "except": [HOSTILE], "labels": labels}
    return {"policyHash": HOSTILE, "webhooks": [{"name": HOSTILE, "namespaces": namespaces, "newPods": calls}]}


def report() -> Report:
    return msgspec.structs.replace(hostile(Report), rules=({"half": HOSTILE, "stage": HOSTILE, "found": HOSTILE},))


GIVEN: dict[Page, Json] = {
    controller_page.format_controller: {"document": controller()},
    decisions_page.format_rows: {"decisions": [decision(), {**decision(), "decision": "Exempt"}], "wide": True},
    status_page.format_status: {"document": status()},
    webhooks_page.format_explanation: {"document": webhooks()},
    yaml_page.format_diff: {"before": DOCUMENT, "after": {**DOCUMENT, "more": HOSTILE}, "name": HOSTILE},
    yaml_stream.format_yaml_stream: {"documents": ({"a": HOSTILE},)},
    yaml_text.format_yaml: {"document": {**DOCUMENT, "half of a pair": ALONE}},
    pod_report_page.format_report: {"report": report(), "with_rules": True},
    results.format_junit: {"results": [hostile(CaseResult)._replace(error=None)]},
    yaml_text.format_flow: {"document": DOCUMENT},
    diff.build_rows: {"before": DOCUMENT, "after": {**DOCUMENT, "more": HOSTILE}},
}
"""Documents of pages that do not declare the type of theirs; the others get values of the types they declare."""

PARTS: dict[Page, str] = {
    explain_view.build_remarks: "format_diff prints them",
    explain_view.describe_dependences: "format_review prints them as comments",
    status_page.format_webhooks: "a part of two pages, which have cleaned their document",
    status_page.format_queues: "as above",
    status_page.format_rollout: "as above",
    status_page.build_limit_rows: "as above, and of `quota show`, which has too",
    status_page.format_override: "as above",
    pod_report_page.format_limit: "a part of the page of a report",
    pod_report_page.list_parts: "as above, and of the console, which escapes all texts",
    table.format_table: "a layout, of cells that its page has cleaned",
    table.format_duration: "a number",
    suggestion_document.build_document: "a document for JSON",
    first_policy_page.build_first_document: "a document for JSON",
    suggestion_page.select_fields: "a part of a document",
    check_page.build_check_document: "a document for JSON",
    check_page.count_severities: "numbers",
    results.build_result_document: "a document for JSON",
    results.format_details: "format_result indents them",
    results.compute_exit_code: "a number",
}
"""Functions that print nothing by themselves, and why."""


def pages() -> Iterator[Page]:
    """Yield the public functions of every module of pages: a new one is found here."""
    found = pkgutil.walk_packages(output.__path__, f"{output.__name__}.")
    modules: list[ModuleType] = [import_module(one.name) for one in found]
    for module in (*modules, simulation_page, results):
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__ and not name.startswith("_"):
                yield function


def arguments(page: Page) -> Json:
    hints = get_type_hints(page)
    hints.pop("return", None)
    found = {name: hostile(hint, name) for name, hint in hints.items()}
    return {**found, **({"width": 80} if "width" in found else {}), **GIVEN.get(page, {})}


def texts(printed: Any) -> Iterator[str]:
    """Yield the lines that a page returns: one text, or many."""
    if isinstance(printed, bytes):
        yield from printed.decode().split("\n")
    elif isinstance(printed, str):
        yield from printed.split("\n")
    elif isinstance(printed, diff.Row):
        yield printed.text
    elif isinstance(printed, Iterable):
        for one in printed:
            yield from [one] if isinstance(one, str) else texts(one)


def assert_harmless(lines: Iterable[str]) -> None:
    shown = list(lines)
    for line in shown:
        assert line.isprintable(), ascii(line)
        assert not line.startswith(FORGED), ascii(line)


@pytest.mark.parametrize("page", [page for page in pages() if page not in PARTS], ids=lambda page: page.__qualname__)
def test_page_shows_only_printable_text(page: Page) -> None:
    assert_harmless(texts(page(**arguments(page))))


def test_parts_and_documents_are_of_pages_that_exist() -> None:
    assert {*PARTS, *GIVEN} <= set(pages())


def test_hostile_name_is_still_recognised() -> None:
    [row] = decisions_page.format_rows([{**decision(), "namespace": "shop", "name": "web\x1b[2J\u202e-1"}], wide=False)
    assert "shop/web\\x1b[2J\\u202e-1" in row


@pytest.mark.parametrize(
    ("command", "path", "document"),
    [
        (("status",), "/status", status()),
        (("status",), "/status", controller()),
        (("quota", "show", HOSTILE), "/status", status()),
        (("breaker", "list"), "/status", status()),
        (("queue", "list"), "/queue?service=", msgspec.to_builtins(hostile(QueueDocument))),
        (("decisions",), "/api/v1/decisions?limit=100", {"decisions": [decision()], "next": None, "error": HOSTILE}),
        (("nodes",), "/api/v1/nodes?limit=100", msgspec.to_builtins(hostile(NodeDocument))),
    ],
    ids=["status", "controller", "quota", "breakers", "queue", "decisions", "nodes"],
)
@pytest.mark.parametrize("form", ["table", "wide", "json", "yaml"])
def test_command_prints_only_printable_text(command: tuple[str, ...], path: str, document: Json, form: str) -> None:
    option = "--extender" if command == ("nodes",) else "--server"
    body = json.dumps(document).encode()
    with serve_answers({path: (200, body), "/queue?limit=0": (200, body)}) as url:
        done = podgate(*command, option, url, "-o", form)
    assert done.code == 0, done.err
    assert_harmless([*done.out.splitlines(), *done.err.splitlines()])
    read = {"json": json.loads, "yaml": yaml.safe_load}.get(form)
    if read is not None:
        assert HOSTILE in _flat(read(done.out)), "it means the same"


def _flat(value: Any) -> list[str]:
    """Return all texts of a document."""
    if isinstance(value, dict):
        return [text for pair in value.items() for one in pair for text in _flat(one)]
    return [text for one in value for text in _flat(one)] if isinstance(value, list) else [value]


def test_error_of_a_command_is_printable() -> None:
    with serve_answers({"/status": (200, b"x")}) as url:
        done = podgate("status", HOSTILE, "--server", f"{url}/\x1b[2J")
    assert done.code == 2
    assert_harmless(done.err.splitlines())


# Logs and Events


HANDLERS = [name for name, _ in inspect.getmembers(Observer, inspect.isfunction) if not name.startswith("_")]


@pytest.mark.parametrize("name", HANDLERS)
def test_log_line_is_printable_and_one_line(name: str) -> None:
    stream = io.StringIO()
    handler = getattr(Logs(JsonLines(stream), sample_every=1), name)
    handler(**arguments(handler))
    written = stream.getvalue()
    assert written.count("\n") == len(written.splitlines())
    assert_harmless(written.split("\n"))


def test_log_line_with_half_a_surrogate_is_written() -> None:
    stream = io.StringIO()
    JsonLines(stream).write("info", f"{ALONE}{HOSTILE}", more=[ALONE])
    assert_harmless(stream.getvalue().split("\n"))
    assert json.loads(stream.getvalue())["more"] == ["\\ud800"]


def test_log_line_of_a_library_is_printable() -> None:
    stream = io.StringIO()
    StandardLogging(JsonLines(stream)).emit(logging.LogRecord("x", 30, "", 0, HOSTILE, None, None))
    assert_harmless(stream.getvalue().split("\n"))
    assert stream.getvalue()


def test_note_of_every_event_is_printable_and_bounded() -> None:
    """All Events are made by `Happening.body`."""
    about = Regarding("v1", "Pod", "shop", "web-1", "u1")
    note = Happening(about, EventType.NORMAL, "Reason", "Act", HOSTILE * 50, "1", 0).body("podgate-0")["note"]
    assert_harmless([note])
    assert len(note.encode()) <= NOTE_BYTES_MAX


def test_event_of_a_breaker_is_printable() -> None:
    opened = msgspec.structs.replace(hostile(Transition), old=State.CLOSED, new=State.OPEN)
    found = make_transition_event(opened, Regarding("v1", "ConfigMap", "a", "b"))
    assert found is not None
    assert_harmless([found.body("podgate-0")["note"]])


# What a server answers


def test_denial_and_warnings_are_printable() -> None:
    answer = msgspec.json.decode(respond("u", ResponseStatus(403, "Forbidden", HOSTILE), (HOSTILE, "plain")))[
        "response"
    ]
    assert_harmless([answer["status"]["message"], *answer["warnings"]])
    assert answer["warnings"][1] == "plain"


def test_document_of_a_port_is_escaped_and_means_the_same() -> None:
    body = build_json_response(msgspec.json.encode({"name": HOSTILE})).body.decode()
    assert_harmless([body])
    assert json.loads(body) == {"name": HOSTILE}
