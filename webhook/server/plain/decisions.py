"""Decision port: records of decisions and the policies that made them, read-only over plain HTTP, for loopback."""

import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TypeVar

import msgspec

from webhook.core.kubernetes.quantity import Duration
from webhook.core.reporting.decision_query import LIMIT, LIMIT_MAX, DecisionQuery, parse_milliseconds
from webhook.decisions.search import DecisionSearch
from webhook.errors import StoreUnavailableError
from webhook.server.http_messages import Handler, HttpResponse, build_closing_response, build_json_response
from webhook.server.plain.local_pages import Page, build_local_handler, check_parameters, parse_limit

DECISIONS, POLICIES = "/api/v1/decisions", "/api/v1/policies/"
_YAML = "application/yaml"
_HASH = re.compile(r"[0-9a-f]{16}")
_TEXTS = ("service", "namespace", "name", "uid", "owner")
_T = TypeVar("_T")
_PARAMETERS = (*_TEXTS, "denied", "since", "before", "limit")


def build_decision_handler(
    search: DecisionSearch, now_ms: Callable[[], int], more: Mapping[str, Page] | None = None
) -> Handler:
    """Return the handler; `more` are further pages by path."""

    async def show_decisions(parameters: Mapping[str, str]) -> HttpResponse:
        found = await search.find(parse_query(parameters, now_ms()))
        page = {"decisions": found.records, "next": found.next_before or None, "error": found.error or None}
        return build_json_response(msgspec.json.encode(page))

    pages: dict[str, Page] = {DECISIONS: show_decisions, **(more or {})}

    def find_page(path: str) -> Page | None:
        if path.startswith(POLICIES):
            return lambda _: _answer_policy(search, path.removeprefix(POLICIES))
        return pages.get(path)

    return build_local_handler(find_page)


def parse_query(parameters: Mapping[str, str], now_ms: int) -> DecisionQuery:
    """Return the query. ValueError: an unknown parameter or a bad value."""
    check_parameters(parameters, _PARAMETERS)
    return DecisionQuery(
        **{name: parameters.get(name, "") for name in _TEXTS},
        denied=_parse_parameter(parameters, "denied", _parse_bool, default=False),
        since_ms=_parse_parameter(
            parameters, "since", lambda text: now_ms - Duration.parse(text).us // 1000, default=0
        ),
        before=_parse_parameter(parameters, "before", _check_record_id, default=""),
        limit=parse_limit(parameters, LIMIT, LIMIT_MAX),
    )


async def _answer_policy(search: DecisionSearch, policy_hash: str) -> HttpResponse:
    if not _HASH.fullmatch(policy_hash):
        raise ValueError(f"{policy_hash!r:.40}: no hash of a policy: write 16 hexadecimal digits")
    try:
        found = await search.policy(policy_hash)
    except StoreUnavailableError as error:
        return build_closing_response(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
    return build_closing_response(HTTPStatus.NOT_FOUND) if found is None else HttpResponse(HTTPStatus.OK, found, _YAML)


def _parse_parameter(parameters: Mapping[str, str], name: str, read: Callable[[str], _T], *, default: _T) -> _T:
    text = parameters.get(name)
    if text is None:
        return default
    try:
        return read(text)
    except ValueError as error:
        raise ValueError(f"{name}: {text!r:.100}: {error}") from None


def _parse_bool(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError("write true or false")
    return text == "true"


def _check_record_id(text: str) -> str:
    parse_milliseconds(text)
    return text
