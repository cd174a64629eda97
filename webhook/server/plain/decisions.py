"""Decision port: records of decisions and the policies that made them, read-only over plain HTTP, for loopback."""

import re
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from ipaddress import ip_address
from typing import TypeVar
from urllib.parse import parse_qsl, urlsplit

import msgspec

from webhook.core.kubernetes.quantity import Duration
from webhook.core.reporting.decision_query import LIMIT, LIMIT_MAX, DecisionQuery, milliseconds_of
from webhook.decisions.search import DecisionSearch
from webhook.errors import StoreUnavailableError
from webhook.server.http_messages import JSON, Handler, HttpRequest, HttpResponse, closing_response

DECISIONS, POLICIES = "/api/v1/decisions", "/api/v1/policies/"
NOT_LOCAL = "the Host header must be an IP address or localhost"
_YAML = "application/yaml"
_HASH = re.compile(r"[0-9a-f]{16}")
_TEXTS = ("service", "namespace", "name", "uid", "owner")
_T = TypeVar("_T")
_PARAMETERS = (*_TEXTS, "denied", "since", "before", "limit")

Page = Callable[[Mapping[str, str]], Awaitable[HttpResponse]]
"""Answers a request by the parameters of its query."""


def decision_handler(
    search: DecisionSearch, now_ms: Callable[[], int], more: Mapping[str, Page] | None = None
) -> Handler:
    """Return the handler; `more` are further pages by path."""

    async def decisions(parameters: Mapping[str, str]) -> HttpResponse:
        found = await search.find(query_of(parameters, now_ms()))
        page = {"decisions": found.records, "next": found.next_before or None, "error": found.error or None}
        return HttpResponse(HTTPStatus.OK, msgspec.json.encode(page), JSON)

    pages: dict[str, Page] = {DECISIONS: decisions, **(more or {})}

    async def handle(request: HttpRequest) -> HttpResponse:
        if not is_local_name(request.headers.get("Host", "")):
            # A name in a page's URL may be made to resolve to this address (DNS rebinding); an address cannot.
            return closing_response(HTTPStatus.FORBIDDEN, NOT_LOCAL)
        page = pages.get(request.path)
        if page is None and not request.path.startswith(POLICIES):
            return closing_response(HTTPStatus.NOT_FOUND)
        if request.method != "GET":
            return closing_response(HTTPStatus.METHOD_NOT_ALLOWED, allow="GET")
        try:
            if page is None:
                return await _policy(search, request.path.removeprefix(POLICIES))
            return await page(_parameters(request.query))
        except ValueError as error:
            return closing_response(HTTPStatus.BAD_REQUEST, str(error))

    return handle


def query_of(parameters: Mapping[str, str], now_ms: int) -> DecisionQuery:
    """Return the query. ValueError: an unknown parameter or a bad value."""
    for name in parameters:
        if name not in _PARAMETERS:
            raise ValueError(f"{name}: no such parameter: there are {', '.join(_PARAMETERS)}")
    return DecisionQuery(
        **{name: parameters.get(name, "") for name in _TEXTS},
        denied=_read(parameters, "denied", _truth, default=False),
        since_ms=_read(parameters, "since", lambda text: now_ms - Duration.parse(text).us // 1000, default=0),
        before=_read(parameters, "before", _record_id, default=""),
        limit=_read(parameters, "limit", _limit, default=LIMIT),
    )


async def _policy(search: DecisionSearch, policy_hash: str) -> HttpResponse:
    if not _HASH.fullmatch(policy_hash):
        raise ValueError(f"{policy_hash!r:.40}: no hash of a policy: write 16 hexadecimal digits")
    try:
        found = await search.policy(policy_hash)
    except StoreUnavailableError as error:
        return closing_response(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
    return closing_response(HTTPStatus.NOT_FOUND) if found is None else HttpResponse(HTTPStatus.OK, found, _YAML)


def is_local_name(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        if name == "localhost":
            return True
        ip_address(name)
    except ValueError:
        return False
    return True


def _parameters(query: str) -> dict[str, str]:
    return dict(parse_qsl(query, keep_blank_values=True, max_num_fields=len(_PARAMETERS)))


def _read(parameters: Mapping[str, str], name: str, read: Callable[[str], _T], *, default: _T) -> _T:
    text = parameters.get(name)
    if text is None:
        return default
    try:
        return read(text)
    except ValueError as error:
        raise ValueError(f"{name}: {text!r:.100}: {error}") from None


def _truth(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError("write true or false")
    return text == "true"


def _record_id(text: str) -> str:
    milliseconds_of(text)
    return text


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(LIMIT_MAX)) and 0 < int(text) <= LIMIT_MAX):
        raise ValueError(f"write a number from 1 to {LIMIT_MAX}")
    return int(text)
