"""Pages of a decision port, read-only over plain HTTP, for loopback."""

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from ipaddress import ip_address
from urllib.parse import parse_qsl, urlsplit

from webhook.server.http_messages import Handler, HttpRequest, HttpResponse, build_closing_response

NOT_LOCAL = "the Host header must be an IP address or localhost"
_PARAMETERS_MAX = 8

Page = Callable[[Mapping[str, str]], Awaitable[HttpResponse]]
"""Answers a request by the parameters of its query. ValueError: an unknown parameter, or a bad value."""


def build_local_handler(page_at: Callable[[str], Page | None]) -> Handler:
    """Return the handler of the pages that `page_at` returns by path."""

    async def handle(request: HttpRequest) -> HttpResponse:
        if not is_local_name(request.headers.get("Host", "")):
            # A name in a page's URL may be made to resolve to this address (DNS rebinding); an address cannot.
            return build_closing_response(HTTPStatus.FORBIDDEN, NOT_LOCAL)
        page = page_at(request.path)
        if page is None:
            return build_closing_response(HTTPStatus.NOT_FOUND)
        if request.method != "GET":
            return build_closing_response(HTTPStatus.METHOD_NOT_ALLOWED, allow="GET")
        try:
            return await page(dict(parse_qsl(request.query, keep_blank_values=True, max_num_fields=_PARAMETERS_MAX)))
        except ValueError as error:
            return build_closing_response(HTTPStatus.BAD_REQUEST, str(error))

    return handle


def check_parameters(given: Mapping[str, str], names: tuple[str, ...]) -> None:
    """Raise ValueError for a parameter with another name."""
    for name in given:
        if name not in names:
            raise ValueError(f"{name}: no such parameter: there are {', '.join(names)}")


def parse_limit(parameters: Mapping[str, str], default: int, highest: int) -> int:
    """Return the parameter `limit`. ValueError: not a number up to `highest`."""
    text = parameters.get("limit", str(default))
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(highest)) and 0 < int(text) <= highest):
        raise ValueError(f"limit: {text!r:.100}: write a number from 1 to {highest}")
    return int(text)


def is_local_name(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        if name == "localhost":
            return True
        ip_address(name)
    except ValueError:
        return False
    return True
