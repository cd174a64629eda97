"""Load of nodes from the HTTP API of a Prometheus with every possible fault, from a real HTTP server."""

import asyncio
import json
import re
import ssl
from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace

from certs.authority import Authority, list_server_names
from certs.ca_generations import encode_pem
from certs.files import write_key_pair
from webhook.adapters.node_loads import PrometheusLoads, prometheus, prometheus_api
from webhook.core.policy_fields.nodes import BasicAuth, LoadSource, NodeQueries, Nodes, PrometheusSource
from webhook.errors import LoadSourceError

NOW = 1_000_000.0
CPU, MEMORY, TIME = "cpu", "memory", "timestamp"
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
Series = tuple[Mapping[str, str], str]
"""Labels and value."""


class Handler:
    """Answers all queries with `answer`; by default with `series`, by a word in the query."""

    def __init__(self) -> None:
        self.series: dict[str, list[Series]] = {
            CPU: [({"node": "a"}, "2")],
            MEMORY: [({"node": "a"}, "1024")],
            TIME: [({"node": "a"}, f"{NOW}")],
        }
        self.answer: Answer = self.answer_series
        self.authorization = ""

    async def answer_series(self, request: web.Request) -> web.StreamResponse:
        self.authorization = request.headers.get("Authorization", "")
        query = str((await request.post())["query"])
        word = next(word for word in (TIME, MEMORY, CPU) if word in query)
        key, value = ("values", list) if request.path.endswith("_range") else ("value", tuple)
        found = []
        for labels, text in self.series[word]:
            sample = [NOW, text]
            found.append({"metric": labels, key: [sample] if value is list else sample})
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": found}})


def text(body: str | bytes, status: int = 200) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, status=status, content_type="application/json")

    return answer


async def hang(_: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def send_endless_body(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" " * 65_536)


async def drip(request: web.Request) -> web.StreamResponse:
    """Send a byte now and then: no read times out."""
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.01)


async def abort_body(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "100000"})
    await response.prepare(request)
    await response.write(b'{"status":"success"')
    assert request.transport is not None
    request.transport.abort()
    return response


async def redirect_to_login(_: web.Request) -> web.StreamResponse:
    raise web.HTTPFound("/login")


@asynccontextmanager
async def run_prometheus(
    handler: Handler, tls: ssl.SSLContext | None = None, files: Path = Path("/"), **source: Any
) -> AsyncIterator[PrometheusLoads]:
    """Yield a source that asks for cpu and memory with two words and nothing else."""

    async def handle(request: web.Request) -> web.StreamResponse:
        return await handler.answer(request)

    application = web.Application()
    application.router.add_route("*", "/api/v1/{path}", handle)
    application.router.add_get("/login", text("<html>Sign in</html>"))
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.01, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    port = runner.addresses[0][1]
    of = PrometheusSource(
        url=f"{'https' if tls else 'http'}://127.0.0.1:{port}", queries=NodeQueries(cpu=CPU, memory=MEMORY), **source
    )
    loads = PrometheusLoads("prometheus", of, Nodes(sources=(LoadSource(prometheus=of),)), files=files)
    # No pressure: it would be three more queries of NodeExporter's profile.
    loads._queries = loads._queries._replace(cpu_pressure="", memory_pressure="", io_pressure="")
    try:
        yield loads
    finally:
        await loads.close()
        await runner.cleanup()


async def test_deviations_are_measured_while_a_policy_weighs_them() -> None:
    handler, needs = Handler(), False

    async def answer(request: web.Request) -> web.StreamResponse:
        if not request.path.endswith("_range"):
            return await handler.answer_series(request)
        query = str((await request.post())["query"])
        values = [[NOW - 60, "1"], [NOW - 30, "2"], [NOW, "3"]] if CPU in query else [[NOW - 30, "512"], [NOW, "512"]]
        result = [{"metric": {"node": "a"}, "values": values}]
        return web.json_response({"status": "success", "data": {"resultType": "matrix", "result": result}})

    handler.answer = answer
    async with run_prometheus(handler) as loads:
        loads._needs_deviation = lambda: needs
        assert (await loads.measure(NOW))["a"].cpu_deviation_millis is None
        needs = True
        found = (await loads.measure(NOW))["a"]
    average = (0.64 * 1 + 0.8 * 2 + 3) / 2.44
    variance = (0.64 * (1 - average) ** 2 + 0.8 * (2 - average) ** 2 + (3 - average) ** 2) / 2.44
    assert found.cpu_millis == pytest.approx(1000 * average)
    assert found.cpu_deviation_millis == pytest.approx(1000 * variance**0.5)
    assert (found.memory_bytes, found.memory_deviation_bytes) == (512, 0)


async def test_measures_cpu_and_memory_of_each_node() -> None:
    async with run_prometheus(Handler()) as loads:
        found = await loads.measure(NOW)
    assert list(found) == ["a"]
    assert (found["a"].cpu_millis, found["a"].memory_bytes, found["a"].measured_at_seconds) == (2000, 1024, NOW)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (hang, "no answer within 0.5 s"),
        (drip, "no answer within 0.5 s"),
        (send_endless_body, "more than 1 MiB"),
        (abort_body, "/api/v1/query"),
        (redirect_to_login, "not an answer of Prometheus"),
        (text("Unauthorized", 401), "HTTP 401: it wants another token, or user and password"),
        (text("Unauthorized", 403), "HTTP 403: it wants another token, or user and password"),
        (text("<html>Bad Gateway</html>", 502), "HTTP 502, and not an answer of Prometheus"),
        (text('{"status":"success","data":{"result":[]}}', 500), "HTTP 500"),
        (text('{"status":"error","error":"query timed out"}', 503), "query timed out"),
        (text('{"status":"error","error":"query timed out"}'), "query timed out"),
        (text('{"status":"success","data":{"result":['), "not an answer"),
        (text(b"\xff\xfe\x00"), "not an answer"),
        (text("null"), "not an answer"),
        (text('{"status":"success","data":null}'), "not an answer"),
        (text('{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}'), "not an answer"),
        (text('{"status":"success","data":{"result":[]}}'), "cpu of 0 nodes, memory of 0, sample times of 0"),
        (text("[" * 100_000), "not an answer"),
    ],
)
async def test_wrong_answer_is_an_error_within_the_timeout(
    answer: Answer, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus, "_TIMEOUT_SECONDS", 0.5 if answer in {hang, drip} else 30.0)
    monkeypatch.setattr(prometheus_api, "_BODY_BYTES_MAX", 1 << 20)
    handler = Handler()
    handler.answer = answer
    async with run_prometheus(handler) as loads:
        with pytest.raises(LoadSourceError, match=reason):
            await loads.measure(NOW)
        handler.answer = handler.answer_series
        monkeypatch.setattr(prometheus, "_TIMEOUT_SECONDS", 30.0)
        assert list(await loads.measure(NOW)) == ["a"], "the next reading is not affected"


async def test_server_that_is_gone_is_an_error() -> None:
    async with run_prometheus(Handler()) as loads:
        loads._api._source = replace(loads._api._source, url="http://127.0.0.1:1")
        with pytest.raises(LoadSourceError, match=r"127\.0\.0\.1:1"):
            await loads.measure(NOW)


async def test_answer_about_many_nodes_is_read_to_its_end() -> None:
    handler = Handler()
    names = [f"node-{number:05}" for number in range(5000)]
    handler.series = {word: [({"node": name}, "3") for name in names] for word in (CPU, MEMORY, TIME)}
    async with run_prometheus(handler) as loads:
        assert (await loads.measure(NOW)).keys() == set(names)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "many", "", "0x10", "1e999"])
@pytest.mark.parametrize("word", [CPU, MEMORY, TIME])
async def test_node_without_a_usable_value_is_left_out_so_that_its_last_load_or_the_next_source_is_used(
    word: str, value: str
) -> None:
    handler = Handler()
    for series in handler.series.values():
        series.append(({"node": "lying"}, "7"))
    handler.series[word][1] = {"node": "lying"}, value
    async with run_prometheus(handler) as loads:
        assert list(await loads.measure(NOW)) == ["a"]
        [(name, reason)] = loads.unread.items()
    signal = "freshness" if word == TIME else word
    assert (name, reason) == (f"lying {signal}", f"{value!r}: not a number of 0 or more")


async def test_series_of_another_type_loses_its_own_value_alone() -> None:
    handler = Handler()
    answer_series = handler.answer_series

    async def answer(request: web.Request) -> web.StreamResponse:
        response = await answer_series(request)
        assert isinstance(response, web.Response)
        assert response.body is not None
        document = json.loads(bytes(response.body))  # type: ignore[arg-type]  it is not a payload
        document["data"]["result"].append({"metric": {"node": "b"}, "value": 5, "values": 5})
        return web.json_response(document)

    handler.answer = answer
    async with run_prometheus(handler) as loads:
        assert list(await loads.measure(NOW)) == ["a"]
        assert loads.unread.keys() == {"b cpu", "b memory", "b freshness"}
        handler.answer = answer_series
        assert list(await loads.measure(NOW)) == ["a"]
        assert loads.unread == {}


async def test_largest_of_several_series_for_one_node_counts() -> None:
    handler = Handler()
    for order in (("8", "1"), ("1", "8")):
        handler.series[CPU] = [
            ({"node": "a", "instance": f"{number}:9100"}, cores) for number, cores in enumerate(order)
        ]
        async with run_prometheus(handler) as loads:
            assert (await loads.measure(NOW))["a"].cpu_millis == 8000


async def test_node_is_named_by_its_label_else_by_the_instance_without_its_port() -> None:
    handler = Handler()
    names = [{"node": "a", "instance": "10.0.0.1:9100"}, {"instance": "10.0.0.2:9100"}, {"instance": "[fd00::1]:9100"}]
    handler.series = {word: [(labels, "3") for labels in [*names, {}]] for word in (CPU, MEMORY, TIME)}
    async with run_prometheus(handler) as loads:
        assert (await loads.measure(NOW)).keys() == {"a", "10.0.0.2", "fd00::1"}


async def test_token_is_read_for_each_query_and_one_that_cannot_be_sent_is_an_error(tmp_path: Path) -> None:
    token, handler = tmp_path / "token", Handler()
    async with run_prometheus(handler, token_file=str(token)) as loads:
        for bad in (None, b"two\nlines", b"\xff"):
            if bad is not None:
                token.write_bytes(bad)
            with pytest.raises(LoadSourceError, match="tokenFile"):
                await loads.measure(NOW)
        token.write_text("good\n")
        await loads.measure(NOW)
    assert handler.authorization == "Bearer good"


async def test_only_files_of_the_folder_are_sent(tmp_path: Path) -> None:
    """Who may write the policy chooses file and server: any other file of the extender's Pod stays there."""
    files, handler, secret = tmp_path / "prometheus", Handler(), tmp_path / "token"
    (files / "..2026").mkdir(parents=True)
    (files / "..data").symlink_to("..2026")  # as the kubelet mounts a Secret
    (files / "..2026" / "token").write_text("good\n")
    (files / "token").symlink_to("..data/token")
    (files / "link").symlink_to(secret)
    (files / "circle").symlink_to("circle")
    secret.write_text("of the ServiceAccount\n")
    outside = [secret, files / "link", files / ".." / "token", tmp_path / "prometheus-token", "token"]
    for path in outside:
        expected = f"prometheus: tokenFile: {path}: outside {files} (--prometheus-files), is not sent: put it there"
        async with run_prometheus(handler, files=files, token_file=str(path)) as loads:
            with pytest.raises(LoadSourceError, match=re.escape(expected)):
                await loads.measure(NOW)
        for number in range(2):
            pair = [str(files / "token"), str(files / "token")]
            pair[number] = str(path)
            async with run_prometheus(handler, files=files, basic_auth=BasicAuth(*pair)) as loads:
                with pytest.raises(LoadSourceError, match=re.escape(f"File: {path}: outside {files}")):
                    await loads.measure(NOW)
    async with run_prometheus(handler, files=files, token_file=str(files / "circle")) as loads:
        with pytest.raises(LoadSourceError, match="tokenFile"):
            await loads.measure(NOW)
    assert not handler.authorization
    async with run_prometheus(handler, files=files, token_file=str(files / "token")) as loads:
        await loads.measure(NOW)
    assert handler.authorization == "Bearer good"


async def test_files_are_those_that_the_manifests_mount() -> None:
    source = PrometheusSource(url="https://p", token_file="/etc/hostname")
    loads = PrometheusLoads("prometheus", source, Nodes(sources=(LoadSource(prometheus=source),)))
    with pytest.raises(LoadSourceError, match="outside /etc/podgate/prometheus"):
        await loads.measure(NOW)
    await loads.close()


async def test_user_and_password_are_read_for_each_query_and_those_that_cannot_be_sent_are_an_error(
    tmp_path: Path,
) -> None:
    username, password, handler = tmp_path / "username", tmp_path / "password", Handler()
    basic_auth = BasicAuth(str(username), str(password))
    async with run_prometheus(handler, basic_auth=basic_auth) as loads:
        for bad, field in ((None, "usernameFile"), (b"a:b", "usernameFile: a user's name has no colon")):
            if bad is not None:
                username.write_bytes(bad)
            with pytest.raises(LoadSourceError, match=f"basicAuth.{field}"):
                await loads.measure(NOW)
        username.write_text("reader\n")
        for bad in (None, b"two\nlines", b"\xff"):
            if bad is not None:
                password.write_bytes(bad)
            with pytest.raises(LoadSourceError, match=r"basicAuth\.passwordFile"):
                await loads.measure(NOW)
        password.write_text("pässword: of two words\n")
        await loads.measure(NOW)
    kind, _, sent = handler.authorization.partition(" ")
    assert (kind, b64decode(sent).decode()) == ("Basic", "reader:pässword: of two words")


async def test_ca_that_was_replaced_is_read_without_a_restart(tmp_path: Path) -> None:
    ca, right = tmp_path / "ca.crt", Authority.create("right")
    write_key_pair(right.issue_server("p", list_server_names("127.0.0.1")), tmp_path / "tls.crt", tmp_path / "tls.key")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    ca.write_bytes(encode_pem(Authority.create("wrong").key_pair.certificate))
    async with run_prometheus(Handler(), context, ca_file=str(ca)) as loads:
        with pytest.raises(LoadSourceError, match="CERTIFICATE_VERIFY_FAILED"):
            await loads.measure(NOW)
        ca.write_bytes(encode_pem(right.key_pair.certificate))
        assert (await loads.measure(NOW)).keys() == {"a"}
