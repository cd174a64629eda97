"""Endpoint of one act: its form, the page that asks once with the equal command line, and what has happened."""

import secrets
import shlex
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from string import Formatter
from typing import NamedTuple
from urllib.parse import quote, urlencode

from aiohttp import web

from webhook.console.access import FORM_TOKEN, check_form_token, read_form
from webhook.console.interface.act import ActPlan, ConsoleAct, Form, Hands
from webhook.console.interface.page import Page, PageRequest
from webhook.console.registry import list_pages
from webhook.core.plain_text import escape_line
from webhook.errors import UserError

NOTICE = "done"
"""Parameter of the page after an act: the number of the notice that it shows."""
_CONFIRMED = "confirmed"
_NOTICES_MAX = 64
Render = Callable[..., web.Response]


class Notices:
    """What acts have done lately. An address names a notice by a number, so that no address can say anything else."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def put(self, text: str) -> str:
        """Keep a notice, and return its number."""
        number = secrets.token_hex(8)
        self._texts[number] = text
        while len(self._texts) > _NOTICES_MAX:
            del self._texts[next(iter(self._texts))]
        return number

    def get(self, number: str) -> str:
        return self._texts.get(number, "")


class ActLink(NamedTuple):
    """A link to an act on the page that leads to it."""

    path: str
    text: str


def list_act_links(acts: Iterable[ConsoleAct], page: Page, parts: Mapping[str, str]) -> tuple[ActLink, ...]:
    """Return links to the acts that begin on a page and need nothing more than the parts of its path."""
    return tuple(
        ActLink(fill_path(act.path, parts), act.link)
        for act in acts
        if act.link and act.back == page.path and _list_parts(act.path) <= parts.keys()
    )


def fill_path(path: str, parts: Mapping[str, str]) -> str:
    """Return an address: a path whose parts in braces are filled."""
    return path.format_map({name: quote(text, safe="") for name, text in parts.items()})


def _list_parts(path: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(path) if name}


class ActEndpoint:
    """Shows the form to those who look, and acts for those whose form has their token."""

    def __init__(self, act: ConsoleAct, hands: Hands, render: Render, notify: Callable[[str], str]) -> None:
        self._act = act
        self._back = act.back if act.back in {page.path for page in list_pages()} else "/"
        self._hands = hands
        self._render = render
        self._notify = notify

    async def show(self, asked: PageRequest, request: web.Request) -> web.Response:
        """Return the form; parameters of the query fill it."""
        given = {field.name: asked.query.get(field.name, field.default) for field in self._act.fields}
        return self._show_form(asked, request, given)

    async def submit(self, asked: PageRequest, request: web.Request) -> web.Response:
        """Check the form; act if it was confirmed, else ask."""
        texts = await read_form(request)
        check_form_token(asked.viewer, texts.get(FORM_TOKEN, ""))
        form = {field.name: texts.get(field.name, "").strip() for field in self._act.fields}
        try:
            self._check(form)
            plan = await self._act.plan(asked, form)
            if texts.get(_CONFIRMED) != "yes":
                values = self._list_values(asked, form) | {"plan": plan, "command": self._write_command(plan)}
                return self._render("act_confirm.html", request, values)
            done = await self._act.perform(self._hands, asked, form)
        except UserError as error:
            return self._show_form(asked, request, form, error)
        raise web.HTTPSeeOther(f"{fill_path(self._back, asked.path)}?{urlencode({NOTICE: self._notify(done)})}")

    def _write_command(self, plan: ActPlan) -> str:
        """Return the command line that does the same in the same place."""
        return shlex.join((*plan.command, *(self._act.list_arguments(self._hands) or ())))

    def _check(self, form: Form) -> None:
        for field in self._act.fields:
            if not form[field.name].isprintable():
                shown = escape_line(form[field.name])
                raise UserError(f"{field.label}: {shown}: has characters that cannot be seen", "type it without them")
            if field.is_required and not form[field.name]:
                raise UserError(f"{field.label}: missing", field.hint)
            if field.choices and form[field.name] not in field.choices:
                raise UserError(f"{field.label}: {form[field.name]!r}: no such choice")

    def _show_form(
        self, asked: PageRequest, request: web.Request, form: Form, error: UserError | None = None
    ) -> web.Response:
        values = self._list_values(asked, form)
        if error is not None:
            values |= {"error": str(error).splitlines(), "remedy": error.remedy}
        return self._render("act.html", request, values, HTTPStatus.OK if error is None else HTTPStatus.BAD_REQUEST)

    def _list_values(self, asked: PageRequest, form: Form) -> dict[str, object]:
        act = self._act
        return {
            "act": act,
            "title": act.title.format_map(dict(asked.path)),
            "back": fill_path(self._back, asked.path),
            "form": dict(form),
            "token_name": FORM_TOKEN,
            "token": asked.viewer.form_token,
            "error": [],
            "remedy": "",
        }
