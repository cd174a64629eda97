"""Form of the pipeline: one change of a draft, which is then linted, proved and judged; and its download and plan."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple
from urllib.parse import urlencode

from webhook.console.interface.console_form import Attachment, ConsoleForm, NextPage
from webhook.console.interface.console_policies import ConsolePolicies
from webhook.console.interface.drafts import Draft, check_draft, format_error
from webhook.console.interface.page import PageRequest
from webhook.console.interface.policy_in_force import read_in_force
from webhook.core.console_views.pipeline import CHECKS, MODES
from webhook.core.document import DocumentError
from webhook.core.document.editing import EditingError, add_entry, move_entry, remove_entry, set_field
from webhook.core.document.yaml.problems import Path
from webhook.errors import UserError

_PATH = re.compile(r"services/\d{1,6}(/(quota/windows|placement/topology|rules)/\d{1,6})?", re.ASCII)
_MOVE = re.compile(r"(\S+) (\d{1,6})", re.ASCII)
_AUDIT = dict.fromkeys(CHECKS[:4], "Audit")
"""A new service only counts until somebody has seen what it would do."""
_ADDRESS = "/policy/edit"
_FILE = "policy.yaml"
_UNREADABLE = "Nothing was changed: the text has mistakes in its YAML"

_NO_PLACE, _AGAIN = "no such place in the policy", "open the page again"
_SERVICE_STEPS = 2
"""Steps of the path of a service; those of its entries have more."""
Form = Mapping[str, str]


class _Change(NamedTuple):
    """A changed document, what was done, and the part of the page where it shows."""

    document: bytes
    done: str
    part: str


async def answer(request: PageRequest, form: Form) -> NextPage | Attachment:
    """Make the change that the form asks for, or say why it is not made."""
    reader, name = request.reader, form.get("draft", "")
    policies = reader.ports.policies
    if policies is None:
        raise UserError("this console edits no policy", "run podgate console")
    verb, _, rest = form.get("do", "").partition(" ")
    if verb not in {*_CHANGES, "download", "candidate"}:
        return NextPage(_format_address(name), "Nothing was changed: use the buttons of the page.")
    try:
        former = reader.drafts.find(name) if name else await _begin(request, verb)
        if verb == "download":
            return Attachment(_FILE, former.document)
        if verb == "candidate":
            return NextPage(_format_address(reader.drafts.add(await _plan(policies, former))), part="candidate")
        change = _CHANGES[verb](former.document, rest, form)
    except EditingError as error:
        return NextPage(_format_address(name), f"Nothing was changed: {error}: {error.remedy}")
    except DocumentError as error:
        return NextPage(_format_address(name), f"{_UNREADABLE}: {error.problems[0]}")
    checked = await check_draft(policies, Draft(change.document, former.base, name))
    return NextPage(_format_address(reader.drafts.add(checked)), change.done, change.part)


async def _begin(request: PageRequest, verb: str) -> Draft:
    """Return what is in force as a draft. A pasted text needs nothing in force: then it is compared with itself."""
    try:
        base = await request.reader.share(read_in_force)
    except UserError:
        if verb != "text":
            raise
        base = b""
    return Draft(base, base)


async def _plan(policies: ConsolePolicies, draft: Draft) -> Draft:
    try:
        return replace(draft, planned=await policies.plan(draft.document), plan_obstacle="")
    except UserError as error:
        return replace(draft, planned=None, plan_obstacle=format_error(error))


def _move(document: bytes, rest: str, _: Form) -> _Change:
    found = _MOVE.fullmatch(rest)
    if found is None:
        raise EditingError(_NO_PLACE, _AGAIN)
    return _move_to(document, _parse_path(found[1]), int(found[2]))


def _place(document: bytes, rest: str, form: Form) -> _Change:
    return _move_to(document, _parse_path(rest), _parse_number(form.get("to", "")) - 1)


def _move_to(document: bytes, path: Path, to: int) -> _Change:
    part = f"service-{to}" if len(path) == _SERVICE_STEPS else f"service-{path[1]}"
    return _Change(move_entry(document, path, to), f"Moved to place {to + 1}.", part)


def _remove(document: bytes, rest: str, _: Form) -> _Change:
    path = _parse_path(rest)
    part = "services" if len(path) == _SERVICE_STEPS else f"service-{path[1]}"
    return _Change(remove_entry(document, path), "Removed.", part)


def _set_mode(document: bytes, rest: str, form: Form) -> _Change:
    path, check, mode = _parse_path(rest), form.get("check", ""), form.get("mode", "")
    if check not in CHECKS or mode not in MODES:
        raise EditingError(f"{check} {mode}: no such mode", "choose one of the list")
    return _Change(set_field(document, (*path, "modes", check), mode), f"{check} is {mode}.", f"service-{path[1]}")


def _add_window(document: bytes, rest: str, form: Form) -> _Change:
    path = _parse_path(rest)
    window = {"window": form.get("window", "").strip(), "hard": {"pods": _parse_number(form.get("pods", ""))}}
    return _Change(add_entry(document, (*path, "quota", "windows"), window), "Window added.", f"service-{path[1]}")


def _add_service(document: bytes, _: str, form: Form) -> _Change:
    match = {"namespaces": [form.get("namespace", "").strip()]}
    added = {"name": form.get("name", "").strip(), "modes": _AUDIT, "match": match}
    return _Change(add_entry(document, ("services",), added), "Service added at the end, in Audit.", "services")


def _take_text(_document: bytes, _: str, form: Form) -> _Change:
    return _Change(form.get("document", "").replace("\r\n", "\n").encode(), "Text taken.", "draft")


_CHANGES: Mapping[str, Callable[[bytes, str, Form], _Change]] = {
    "move": _move,
    "place": _place,
    "remove": _remove,
    "mode": _set_mode,
    "window": _add_window,
    "service": _add_service,
    "text": _take_text,
}


def _parse_path(text: str) -> Path:
    if not _PATH.fullmatch(text):
        raise EditingError(_NO_PLACE, _AGAIN)
    return tuple(int(step) if step.isdecimal() else step for step in text.split("/"))


def _parse_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):  # noqa: PLR2004  a bound
        raise EditingError(f"{text!r}: no whole number", "write one, such as 10")
    return int(text)


def _format_address(name: str) -> str:
    return f"{_ADDRESS}?{urlencode({'draft': name})}" if name else _ADDRESS


FORMS = (ConsoleForm(_ADDRESS, answer),)
