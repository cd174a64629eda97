"""The console of a server: tokens, sessions, rights, their caches and limits; and that nothing there can write."""

import pytest
from yarl import URL

from tests.console.token_serving import SAME_SITE, STATUS, serve


async def test_a_token_opens_a_session_and_logging_out_ends_it() -> None:
    async with serve() as served:
        status, page = await served.get()
        assert (status, "Log in" in page, "/service/" in page) == (401, True, False)
        status, cookie, _ = await served.log_in("token-of-ann")
        assert status == 303
        assert cookie.endswith("; HttpOnly; Path=/; SameSite=Strict")
        assert "token-of-ann" not in cookie
        status, page = await served.get()
        assert (status, "as ann" in page, "/service/web" in page) == (200, True, True)
        assert "token-of-ann" not in page
        form_token = page.partition('name="form_token" value="')[2].partition('"')[0]
        for sent, expected in (({}, 403), ({"form_token": "x"}, 403), ({"form_token": form_token}, 401)):
            async with served.session.post(served.url + "/logout", data=sent, headers=SAME_SITE) as answer:
                assert answer.status == expected
        assert (await served.get())[0] == 401


async def test_behind_a_proxy_the_cookie_is_for_tls_only() -> None:
    async with serve() as served:
        _, cookie, _ = await served.log_in("token-of-ann", Host="podgate.example.com")
        assert "; Secure" in cookie
        assert (await served.log_in("token-of-ann", Host="other.example.com"))[0] == 403


async def test_a_foreign_form_cannot_log_in() -> None:
    async with serve() as served:
        for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://evil.example"}):
            assert (await served.log_in("token-of-ann", **headers))[:2] == (403, "")
        assert served.reviews.asked == []


async def test_a_token_in_the_header_needs_no_session() -> None:
    async with serve() as served:
        assert (await served.get("/api/v1/services", "token-of-ann"))[0] == 200
        assert (await served.get("/api/v1/services", "token-of-nobody"))[0] == 401
        assert (await served.get("/api/v1/services", "x" * 8100 + "\xe9"))[0] == 401
        assert len(served.session.cookie_jar) == 0


async def test_a_user_without_the_right_sees_no_service() -> None:
    async with serve() as served:
        for path in ("/", "/api/v1/services", "/api/v1/events?page=/"):
            status, page = await served.get(path, "token-of-bob")
            assert status == 403
            assert "get on services/proxy in podgate-system" in page
            assert "/service/web" not in page


async def test_verdicts_are_kept_for_a_minute_and_refusals_for_five_seconds() -> None:
    async with serve() as served:
        for _ in range(3):
            await served.get("/", "token-of-ann")
            await served.get("/", "wrong")
            await served.get("/", "token-of-bob")
        asked = served.reviews.asked
        assert asked == ["token-of-ann", ("ann", STATUS), "wrong", "token-of-bob", ("bob", STATUS)]
        served.now[0] += 6
        asked.clear()
        for token in ("token-of-ann", "wrong", "token-of-bob"):
            await served.get("/", token)
        assert asked == ["wrong", ("bob", STATUS)]
        served.now[0] += 60
        served.reviews.users.clear()
        assert (await served.get("/", "token-of-ann"))[0] == 401


async def test_a_session_ends_with_its_token_and_after_half_a_day() -> None:
    async with serve() as served:
        await served.log_in("token-of-ann")
        served.now[0] += 61
        assert (await served.get())[0] == 200
        users = dict(served.reviews.users)
        served.reviews.users.clear()
        served.now[0] += 61
        assert (await served.get())[0] == 401
        served.reviews.users.update(users)
        assert (await served.get())[0] == 401, "it does not come back"
        served.now[0] += 6
        await served.log_in("token-of-ann")
        served.now[0] += 12 * 3600 + 1
        status, page = await served.get()
        assert (status, "the session has ended" in page) == (401, True)


async def test_trying_tokens_is_limited_before_the_api_server_is_asked() -> None:
    async with serve() as served:
        await served.log_in("token-of-ann")
        served.reviews.asked.clear()
        statuses = [(await served.get("/", f"guess-{number}"))[0] for number in range(40)]
        assert statuses == [401] * 19 + [429] * 21
        assert len(served.reviews.asked) == 19
        served.now[0] += 61
        assert (await served.get())[0] == 200, "who is logged in stays so"


async def test_an_api_server_that_does_not_answer_lets_nobody_in() -> None:
    async with serve() as served:
        served.reviews.error = "viewers cannot be judged: HTTP 503"
        status, page = await served.get("/", "token-of-ann")
        assert (status, "/service/web" in page) == (502, False)


async def test_no_route_takes_anything_but_a_login() -> None:
    async with serve() as served:
        await served.log_in("token-of-ann")
        routes = [(route.method, route.resource) for route in served.application.router.routes()]
        assert {method for method, _ in routes} == {"GET", "HEAD"}
        paths = {resource.canonical.replace("{name}", "web") for _, resource in routes if resource is not None}
        for path in paths | {"/", "/service/web/override", "/policy/edit"}:
            for method in ("POST", "PUT", "PATCH", "DELETE"):
                url = URL(served.url + path)
                async with served.session.request(method, url, data={"x": "y"}, headers=SAME_SITE) as answer:
                    assert answer.status in {404, 405}, (method, path)


FORM, PARTS = "application/x-www-form-urlencoded", "multipart/form-data; boundary=b"
FIELD = b"--b\r\nContent-Disposition: form-data; name=token\r\n"


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (FORM, b"token=\xff"),
        (f"{FORM}; charset=none", b"token=a"),
        (f"{FORM}; charset=hex", b"token=a"),
        ("multipart/form-data", b""),
        (PARTS, b"token=a"),
        (PARTS, b"--b\r\n\r\na\r\n--b--\r\n"),
        (PARTS, b"--b\r\nno header\r\n\r\na\r\n--b--\r\n"),
        (PARTS, FIELD + b"\r\n\xff\r\n--b--\r\n"),
        (PARTS, FIELD + b"Content-Transfer-Encoding: none\r\n\r\na\r\n--b--\r\n"),
        (PARTS, FIELD + b"Content-Transfer-Encoding: base64\r\n\r\na\r\n--b--\r\n"),
    ],
)
async def test_a_body_that_is_no_form_is_refused(kind: str, body: bytes) -> None:
    async with serve() as served:
        headers = {**SAME_SITE, "Content-Type": kind}
        async with served.session.post(f"{served.url}/login", data=body, headers=headers) as answer:
            assert answer.status == 400
            assert "the form cannot be read" in await answer.text()
        packed = {**SAME_SITE, "Content-Type": FORM, "Content-Encoding": "gzip"}
        async with served.session.post(f"{served.url}/login", data=b"token=a", headers=packed) as answer:
            assert answer.status == 400
        assert served.reviews.asked == []
