"""Access to a console in the cluster: a token of the cluster, judged by the API server; nothing can be changed."""

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Generic, TypeVar

import msgspec
from aiohttp import web

from webhook.console.access import FORM_TOKEN, AccessDeniedError, TokenNeededError, check_form_token, read_form
from webhook.core.document.configmap import NAMESPACE
from webhook.ports.viewers import AccessReviews, ResourceAccess, ReviewedUser

LOGIN, LOGOUT = "/login", "/logout"
_COOKIE = "podgate-console"
_BEARER = "Bearer "
_TOKEN_BYTES_MAX = 8 << 10
_GOOD_SECONDS, _BAD_SECONDS = 60.0, 5.0
_CACHE_MAX, _SESSIONS_MAX = 1024, 1024
_SESSION_SECONDS = 12 * 3600.0
_REVIEWS_PER_SECOND, _BURST = 5.0, 20.0
_STATUS = ResourceAccess("get", "services", NAMESPACE, "proxy", "http:podgate-metrics:plain")
"""The right that `podgate status` needs."""
_BAD_TOKEN = "the API server does not accept this token"  # noqa: S105  a message
_T = TypeVar("_T")


class _Verdicts(Generic[_T]):
    """Verdicts that are good for a while, the least recently used ones forgotten first."""

    def __init__(self, now_seconds: Callable[[], float]) -> None:
        self._now_seconds = now_seconds
        self._kept: OrderedDict[Hashable, tuple[float, _T]] = OrderedDict()

    async def get(self, key: Hashable, judge: Callable[[], Awaitable[_T]]) -> _T:
        kept = self._kept.get(key)
        if kept is not None and self._now_seconds() < kept[0]:
            self._kept.move_to_end(key)
            return kept[1]
        found = await judge()
        self._kept[key] = (self._now_seconds() + (_GOOD_SECONDS if found else _BAD_SECONDS), found)
        self._kept.move_to_end(key)
        while len(self._kept) > _CACHE_MAX:
            self._kept.popitem(last=False)
        return found


@dataclass(frozen=True, slots=True)
class _Session:
    token: str
    form_token: str
    ends_seconds: float


class TokenViewer:
    """A user of the cluster, who sees what RBAC lets them see."""

    def __init__(self, user: ReviewedUser, form_token: str, may: Callable[[ResourceAccess], Awaitable[bool]]) -> None:
        self.name = user.name
        self.identity = msgspec.json.encode(user).decode()
        self.form_token = form_token
        """For the form that ends the session; "" without a session."""
        self._may = may

    async def sees(self, namespace: str) -> bool:
        """Whether the user may list the Pods of a namespace."""
        return bool(namespace) and await self._may(ResourceAccess("list", "pods", namespace))

    async def sees_services(self) -> bool:
        """Whether the user may read the status of a server."""
        return await self._may(_STATUS)


class TokenAccess:
    """Tokens as `Authorization: Bearer`, or behind the cookie of a session that a form has opened.

    `is_secure` tells by the Host header whether a browser is reached over TLS only.
    """

    def __init__(
        self, reviews: AccessReviews, now_seconds: Callable[[], float], is_secure: Callable[[str], bool]
    ) -> None:
        self._reviews = reviews
        self._now_seconds = now_seconds
        self._is_secure = is_secure
        self._users: _Verdicts[ReviewedUser | None] = _Verdicts(now_seconds)
        self._rights: _Verdicts[bool] = _Verdicts(now_seconds)
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._credit, self._credited_at = _BURST, now_seconds()

    async def identify(self, request: web.Request) -> TokenViewer:
        """Return who asks. TokenNeededError without a valid token; a login and its end lead to the first page."""
        if request.method == "POST" and request.path == LOGIN:
            raise await self._open_session(request)
        header = request.headers.get("Authorization", "")
        if header.startswith(_BEARER):
            return self._build_viewer(await self._review(header.removeprefix(_BEARER).strip()), "")
        name = self._find_session(request.cookies.get(_COOKIE, ""))
        session = self._sessions[name]
        try:
            viewer = self._build_viewer(await self._review(session.token, is_known=True), session.form_token)
        except TokenNeededError:
            self._sessions.pop(name, None)
            raise
        if request.method == "POST" and request.path == LOGOUT:
            check_form_token(viewer, (await read_form(request)).get(FORM_TOKEN, ""))
            self._sessions.pop(name, None)
            answer = web.HTTPSeeOther("/")
            answer.del_cookie(_COOKIE, path="/")
            raise answer
        return viewer

    def _build_viewer(self, user: ReviewedUser, form_token: str) -> TokenViewer:
        async def may(access: ResourceAccess) -> bool:
            return await self._rights.get((viewer.identity, access), lambda: self._reviews.may(user, access))

        viewer = TokenViewer(user, form_token, may)
        return viewer

    async def _open_session(self, request: web.Request) -> web.HTTPException:
        token = (await read_form(request)).get("token", "").strip()
        await self._review(token)
        name = secrets.token_urlsafe(32)
        self._sessions[name] = _Session(token, secrets.token_urlsafe(32), self._now_seconds() + _SESSION_SECONDS)
        while len(self._sessions) > _SESSIONS_MAX:
            self._sessions.popitem(last=False)
        answer = web.HTTPSeeOther("/")
        is_secure = self._is_secure(request.headers.get("Host", ""))
        answer.set_cookie(_COOKIE, name, httponly=True, samesite="Strict", path="/", secure=is_secure)
        return answer

    def _find_session(self, given: str) -> str:
        """Return the name of the session; a name has too many characters to be found by timing."""
        session = self._sessions.get(given)
        if session is None:
            raise TokenNeededError("")
        if session.ends_seconds < self._now_seconds():
            del self._sessions[given]
            raise TokenNeededError("the session has ended")
        return given

    async def _review(self, token: str, *, is_known: bool = False) -> ReviewedUser:
        """Return whose a token is; an unknown one counts against the rate limit before the API server is asked."""
        if not token or not token.isascii() or len(token) > _TOKEN_BYTES_MAX:
            raise TokenNeededError(_BAD_TOKEN)

        async def judge() -> ReviewedUser | None:
            if not is_known:
                self._spend()
            return await self._reviews.find_user(token)

        user = await self._users.get(hashlib.sha256(token.encode()).digest(), judge)
        if user is None:
            raise TokenNeededError(_BAD_TOKEN)
        return user

    def _spend(self) -> None:
        now = self._now_seconds()
        self._credit = min(_BURST, self._credit + (now - self._credited_at) * _REVIEWS_PER_SECOND)
        self._credited_at = now
        if self._credit < 1:
            raise AccessDeniedError("too many tokens were tried", "wait a moment", HTTPStatus.TOO_MANY_REQUESTS)
        self._credit -= 1
