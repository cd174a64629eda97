"""Access to a console on loopback: a token in the printed address, good for once, and then a cookie."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from webhook.console.access import AccessDeniedError, is_secret

TOKEN = "token"  # noqa: S105  the name of a parameter
_TOKEN_SECONDS = 600.0
_SESSIONS_MAX = 16
_BYTES = 32
_USED = "this address has been used, or is too old"
_NO_COOKIE = "this browser has not been let in"
_REMEDY = "press Enter where podgate console runs: it prints a new address"


@dataclass(frozen=True, slots=True)
class LocalViewer:
    """The user who has started the console: sees whatever the kubeconfig may read."""

    form_token: str
    name: str = ""
    identity: str = ""

    async def sees(self, namespace: str) -> bool:  # noqa: ARG002  the API server has judged already
        return True

    async def sees_services(self) -> bool:
        return True


class LocalAccess:
    """Tokens that were printed, and browsers that have exchanged one."""

    def __init__(self, now_seconds: Callable[[], float]) -> None:
        self.cookie_name = "podgate-console"
        """With the port, since a browser sends a cookie to every port of a host."""
        self._now_seconds = now_seconds
        self._tokens: dict[str, float] = {}
        self._sessions: dict[str, LocalViewer] = {}

    def issue_token(self) -> str:
        """Return a new token; those before it are void."""
        token = secrets.token_urlsafe(_BYTES)
        self._tokens = {token: self._now_seconds() + _TOKEN_SECONDS}
        return token

    async def identify(self, request: web.Request) -> LocalViewer:
        """Return who asks; exchange a token of the address for a cookie, by a redirect."""
        given = request.query.get(TOKEN)
        if given is not None and request.method == "GET":
            raise self._exchange(given, request)
        return self._find_session(request.cookies.get(self.cookie_name, ""))

    def _exchange(self, given: str, request: web.Request) -> web.HTTPException:
        token = next((token for token in self._tokens if is_secret(token, given)), None)
        if token is None or self._tokens.pop(token) < self._now_seconds():
            raise AccessDeniedError(_USED, f"{_REMEDY}; if it was not you who used it, end that command")
        session = secrets.token_urlsafe(_BYTES)
        while len(self._sessions) >= _SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[session] = LocalViewer(secrets.token_urlsafe(_BYTES))
        answer = web.HTTPSeeOther(request.path)
        answer.set_cookie(self.cookie_name, session, httponly=True, samesite="Strict", path="/")
        return answer

    def _find_session(self, given: str) -> LocalViewer:
        for session, viewer in self._sessions.items():
            if is_secret(session, given):
                return viewer
        raise AccessDeniedError(_NO_COOKIE, _REMEDY)
