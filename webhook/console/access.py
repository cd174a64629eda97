"""Access: who may look, and which requests are refused whoever sends them."""

import asyncio
import hmac
from collections.abc import Callable, Mapping
from http import HTTPStatus
from ipaddress import ip_address
from typing import Protocol
from urllib.parse import urlsplit

from aiohttp import web
from multidict import CIMultiDictProxy

from webhook.console.interface.page import Viewer

_FORM_SECONDS = 10.0
FORM_TOKEN = "form_token"  # noqa: S105  the name of a field
SECURITY_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Server": "podgate",
}
"""On every answer, also on errors and static files."""


class AccessDeniedError(Exception):
    """A request that is refused; the remedy is for the person at the browser."""

    def __init__(self, reason: str, remedy: str = "", status: HTTPStatus = HTTPStatus.FORBIDDEN) -> None:
        super().__init__(reason)
        self.remedy = remedy
        self.status = status


class StatusDeniedError(AccessDeniedError):
    """A viewer who may not see services; pages of a namespace may still answer."""

    def __init__(self, viewer: str) -> None:
        super().__init__(
            f"{viewer} may not read the status of Podgate",
            "ask for the right that podgate status needs: get on services/proxy in podgate-system",
        )


class TokenNeededError(AccessDeniedError):
    """A request without a valid token; the reason is "" if there was none. The answer is a form that takes one."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, "", HTTPStatus.UNAUTHORIZED)


class Access(Protocol):
    """How viewers are let in."""

    async def identify(self, request: web.Request) -> Viewer:
        """Return who asks. AccessDeniedError; or an HTTPException that leads on."""
        ...


def check_origin(method: str, headers: CIMultiDictProxy[str], is_own_host: Callable[[str], bool]) -> None:
    """Raise AccessDeniedError for a request that another site may have caused.

    A foreign Host is a name that was made to resolve to this address (DNS rebinding).
    """
    host = headers.get("Host", "")
    if not is_own_host(host):
        raise AccessDeniedError("the Host header names another host", "open the address that was printed")
    origin, site = headers.get("Origin"), headers.get("Sec-Fetch-Site")
    # Without a referrer a browser sends `null` with a form of this site, too.
    is_own = origin is None or (site == "same-origin" if origin == "null" else _read_host(origin) == host)
    if not is_own:
        raise AccessDeniedError("the request comes from another site")
    if site not in ({"same-origin"} if method == "POST" else {None, "same-origin", "none"}):
        raise AccessDeniedError("the request comes from another site", "open the address in the browser's address bar")


def _read_host(origin: str) -> str | None:
    """Return host and port of an Origin; None if it is no URL, which is of another site than this one."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


async def read_form(request: web.Request) -> dict[str, str]:
    """Return the texts of a form. AccessDeniedError: it does not arrive, or is none."""
    try:
        async with asyncio.timeout(_FORM_SECONDS):
            sent = await request.post()
    except TimeoutError:
        raise AccessDeniedError("the form did not arrive in time", "", HTTPStatus.REQUEST_TIMEOUT) from None
    except web.HTTPException:
        raise  # it is too large
    except Exception:  # noqa: BLE001  aiohttp has no common error for bytes, charsets and parts that are no form
        raise AccessDeniedError("the form cannot be read", "", HTTPStatus.BAD_REQUEST) from None
    return {name: value for name, value in sent.items() if isinstance(value, str)}


def check_form_token(viewer: Viewer, given: str) -> None:
    """Raise AccessDeniedError unless a form was made for this viewer."""
    if not viewer.form_token or not is_secret(viewer.form_token, given):
        raise AccessDeniedError("the form is not of this session", "open the page again, and send its form")


def is_secret(secret: str, given: str) -> bool:
    """Return whether a request has a secret. aiohttp reads bytes that are no UTF-8 as halves of characters."""
    return hmac.compare_digest(secret.encode(), given.encode(errors="surrogatepass"))


def is_loopback_host(host: str) -> bool:
    """Return whether a Host header names this machine's loopback."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False
