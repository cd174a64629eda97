"""The client: from a kubeconfig, from inside a cluster, and the errors of both."""

import asyncio
import gc
import os
import socket
import ssl
import time
import warnings
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives.serialization import Encoding

from certs.authority import Authority, parse_san
from certs.files import write_key_pair
from tests.harness.fake_apiserver import NAMESPACES, FakeApiServer, fake_apiserver, hang, kubeconfig, wait_until
from webhook.adapters.kubernetes.api import client as module
from webhook.adapters.kubernetes.api.client import connect
from webhook.adapters.kubernetes.api.requests import UnreachedError, send_request
from webhook.errors import UserError
from webhook.support.kubeconfig import Kubeconfig


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith("KUBERNETES_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


@asynccontextmanager
async def open_client(path: Path | None) -> AsyncIterator[Any]:
    async with await connect(path) as client:
        yield client


def write_kubeconfig(folder: Path, document: Any) -> Path:
    path = folder / "kubeconfig"
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return path


async def authorization(client: Any, fake: FakeApiServer) -> str | None:
    await send_request(client, "GET", NAMESPACES, 10)
    return fake.seen[-1].headers.get("Authorization")


async def test_cancellation_at_the_timeout_of_a_request_is_not_lost(fake: FakeApiServer, client: Any) -> None:
    fake.always["list"] = hang
    asking = asyncio.create_task(send_request(client, "GET", NAMESPACES, 1))
    await wait_until(lambda: fake.verbs() == ["list"])
    asyncio.get_running_loop().call_later(1, asking.cancel)
    time.sleep(1.5)  # noqa: ASYNC251  stalls the event loop: both are due in its next turn
    with pytest.raises(asyncio.CancelledError):
        await asking


# A kubeconfig


async def test_token_is_sent_with_every_request(fake: FakeApiServer, tmp_path: Path) -> None:
    async with open_client(write_kubeconfig(tmp_path, kubeconfig(fake.url, token="abc"))) as client:
        assert await authorization(client, fake) == "Bearer abc"
        assert fake.seen[-1].headers["User-Agent"].startswith("podgate/")


async def test_token_file_is_reread_and_relative_to_the_kubeconfig(fake: FakeApiServer, tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path, kubeconfig(fake.url, tokenFile="token", token="static"))
    token = tmp_path / "token"
    token.write_text("one\n")
    async with open_client(path) as client:
        assert await authorization(client, fake) == "Bearer one"
        token.write_text("two\n")
        assert await authorization(client, fake) == "Bearer two"
        token.unlink()
        assert await authorization(client, fake) == "Bearer two", "a file may be absent during its replacement"
        token.write_text("")
        assert await authorization(client, fake) == "Bearer two"


async def test_exec_plugin_runs_again_after_its_token_expires(fake: FakeApiServer, tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path, kubeconfig(fake.url, exec=plugin(tmp_path, expiry="2020-01-01T00:00:00Z")))
    async with open_client(path) as client:
        first = await authorization(client, fake)
        second = await authorization(client, fake)
    assert (first, second) == ("Bearer token-2", "Bearer token-3")


@pytest.mark.parametrize("expiry", ["2999-01-01T00:00:00Z", None])
async def test_exec_plugin_runs_once_while_its_token_is_valid(
    fake: FakeApiServer, tmp_path: Path, expiry: str | None
) -> None:
    path = write_kubeconfig(tmp_path, kubeconfig(fake.url, exec=plugin(tmp_path, expiry)))
    async with open_client(path) as client:
        assert await authorization(client, fake) == "Bearer token-1"
        assert await authorization(client, fake) == "Bearer token-1"


async def test_another_context_than_the_current_one_can_be_used(fake: FakeApiServer, tmp_path: Path) -> None:
    document = kubeconfig(fake.url, token="of-the-current-one")
    [context] = document["contexts"]
    document["contexts"].append({"name": "other", "context": {**context["context"], "user": "other"}})
    document["users"].append({"name": "other", "user": {"token": "of-the-other-one"}})
    client = await connect(Kubeconfig((write_kubeconfig(tmp_path, document),), "other"))
    try:
        assert await authorization(client, fake) == "Bearer of-the-other-one"
    finally:
        await client.close()


async def test_exec_plugin_failure_after_connect_fails_the_request(fake: FakeApiServer, tmp_path: Path) -> None:
    script = plugin(tmp_path, expiry="2020-01-01T00:00:00Z")
    async with open_client(write_kubeconfig(tmp_path, kubeconfig(fake.url, exec=script))) as client:
        (tmp_path / "plugin").write_text("#!/bin/sh\necho no luck >&2\nexit 3\n")
        with pytest.raises(UnreachedError, match="no luck"):
            await authorization(client, fake)
        (tmp_path / "plugin").write_text("#!/bin/sh\necho []\n")
        with pytest.raises(UnreachedError, match="the exec plugin failed"):
            await authorization(client, fake)


async def test_slow_exec_plugin_serves_the_next_request(fake: FakeApiServer, tmp_path: Path) -> None:
    script = plugin(tmp_path, expiry="2020-01-01T00:00:00Z")
    async with open_client(write_kubeconfig(tmp_path, kubeconfig(fake.url, exec=script))) as client:
        os.mkfifo(tmp_path / "gate")
        quick = (tmp_path / "plugin").read_text()
        (tmp_path / "plugin").write_text(quick.replace("#!/bin/sh\n", f"#!/bin/sh\nread line < {tmp_path}/gate\n"))
        with pytest.raises(UnreachedError, match="no answer in time"):
            await send_request(client, "GET", NAMESPACES, 0.05)
        (tmp_path / "gate").write_text("go\n")
        assert await authorization(client, fake) == "Bearer token-2"
        (tmp_path / "plugin").write_text(quick)


def plugin(folder: Path, expiry: str | None) -> dict[str, Any]:
    """Return a plugin that gives token-1, token-2 and so on."""
    script = folder / "plugin"
    stamp = f', "expirationTimestamp": "{expiry}"' if expiry else ""
    status = f'{{"token": "token-$n"{stamp}}}'
    credential = f'{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {status}}}'
    script.write_text(f"#!/bin/sh\necho >> {folder}/count\nn=$(wc -l < {folder}/count)\ncat <<EOF\n{credential}\nEOF\n")
    script.chmod(0o755)
    return {"apiVersion": "client.authentication.k8s.io/v1", "command": str(script), "interactiveMode": "Never"}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("[", "not YAML"),
        ("\x00", "not YAML"),
        ("- a", "not a mapping"),
        ("", "current-context is not set"),
        ("current-context: x", "contexts"),
        ({"current-context": "y", "contexts": [], "clusters": []}, "y"),
        ({"current-context": "x", "contexts": [{"name": "x"}]}, "Expected key context"),
        ({**kubeconfig("http://h"), "clusters": []}, "Expected object with name c"),
        (kubeconfig("http://h", exec={"command": "/no/such", "apiVersion": "v1"}), "exec plugin's command"),
        (
            {
                **kubeconfig("https://h"),
                "clusters": [{"name": "c", "cluster": {"server": "https://h", "certificate-authority": "ca.crt"}}],
            },
            "ca.crt",
        ),
        (kubeconfig("https://h", **{"client-certificate-data": "x"}), "base64"),
        ({**kubeconfig("https://h"), "users": []}, "the current context's user is not there"),
    ],
)
async def test_unusable_kubeconfig_error_has_path_and_remedy(tmp_path: Path, document: Any, words: str) -> None:
    path = write_kubeconfig(tmp_path, document)
    with pytest.raises(UserError) as caught:
        await connect(path)
    assert str(caught.value).startswith(f"{path}: not a usable kubeconfig: ")
    assert words in str(caught.value)
    assert caught.value.remedy == f"try it with: kubectl --kubeconfig {path} get --raw /readyz"


async def test_missing_kubeconfig_error_has_its_path(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere: cannot read the kubeconfig: No such file"):
        await connect(tmp_path / "nowhere")


async def test_error_of_missing_files_names_all_of_them(tmp_path: Path) -> None:
    listed = f"{tmp_path}/a:{tmp_path}/b"
    assert not Kubeconfig.from_text(listed).exists()
    with pytest.raises(UserError, match=f"^{listed}: cannot read the kubeconfig: No such file"):
        await connect(Kubeconfig.from_text(listed))


async def test_file_that_cannot_be_read_is_not_left_out(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    write_kubeconfig(tmp_path, kubeconfig("http://h"))
    for broken in ("folder", "kubeconfig/below-a-file"):
        listed = f"{tmp_path}/{broken}:{tmp_path}/kubeconfig"
        assert Kubeconfig.from_text(listed).exists()
        with pytest.raises(UserError, match=f"^{tmp_path}/{broken}: cannot read the kubeconfig: "):
            await connect(Kubeconfig.from_text(listed))


async def test_user_of_one_file_reaches_the_cluster_of_another(fake: FakeApiServer, tmp_path: Path) -> None:
    whole = kubeconfig(fake.url, tokenFile="token")
    for name, parts in (("users", ("users",)), ("clusters", ("clusters", "contexts", "current-context"))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config").write_text(yaml.safe_dump({part: whole[part] for part in parts}))
    (tmp_path / "users" / "token").write_text("abc")
    listed = f"{tmp_path}/missing:{tmp_path}/users/config:{tmp_path}/clusters/config"
    async with await connect(Kubeconfig.from_text(listed)) as client:
        assert await authorization(client, fake) == "Bearer abc"
    with pytest.raises(UserError, match="not a usable kubeconfig: ") as caught:
        await connect(Kubeconfig.from_text(listed, "nowhere"))
    assert caught.value.remedy == f"try it with: KUBECONFIG={listed} kubectl get --raw /readyz"


async def test_empty_token_file_error_has_its_path(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path, kubeconfig("http://h", tokenFile="token"))
    (tmp_path / "token").write_text("\n")
    with pytest.raises(UserError, match=r"kubeconfig: tokenFile .*/token: cannot be read, or is empty"):
        await connect(path)


async def test_invalid_certificate_authority_in_kubeconfig_is_refused(tmp_path: Path) -> None:
    document = kubeconfig("https://h")
    document["clusters"][0]["cluster"]["certificate-authority-data"] = "bm9uZQ=="
    path = write_kubeconfig(tmp_path, document)
    with pytest.raises(UserError, match="unusable certificates") as caught:
        await connect(path)
    assert str(caught.value).startswith(str(path))


# Proxies and ~/.netrc


async def test_netrc_is_ignored(fake: FakeApiServer, tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("default login eve password secret\n")
    async with open_client(write_kubeconfig(tmp_path, kubeconfig(fake.url, token="abc"))) as client:
        assert await authorization(client, fake) == "Bearer abc"


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:{}", "127.0.0.1:{}"])
async def test_proxy_of_the_environment_applies_to_a_kubeconfig(
    fake: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("http_proxy", proxy.format(fake.port))
    async with open_client(write_kubeconfig(tmp_path, kubeconfig("http://kubernetes.example"))) as client:
        await send_request(client, "GET", NAMESPACES, 10)
    assert fake.seen[-1].headers["Host"] == "kubernetes.example"
    monkeypatch.setenv("no_proxy", "localhost,127.0.0.1")
    async with open_client(write_kubeconfig(tmp_path, kubeconfig(fake.url))) as client:
        assert client.configuration.proxy is None


async def test_proxy_of_the_kubeconfig_overrides_the_environment(
    fake: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    document = kubeconfig("http://kubernetes.example")
    document["clusters"][0]["cluster"]["proxy-url"] = fake.url
    async with open_client(write_kubeconfig(tmp_path, document)) as client:
        await send_request(client, "GET", NAMESPACES, 10)
    assert fake.seen[-1].headers["Host"] == "kubernetes.example"


async def test_loopback_is_reached_without_the_proxy_of_the_environment(
    fake: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with open_client(write_kubeconfig(tmp_path, kubeconfig(fake.url))) as client:
        await send_request(client, "GET", NAMESPACES, 10)


async def test_error_names_the_proxy_without_its_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://eve:secret@127.0.0.1:9")
    async with open_client(write_kubeconfig(tmp_path, kubeconfig("https://kubernetes.example"))) as client:
        with pytest.raises(UnreachedError, match=r" \(through the proxy http://\*\*\*@127\.0\.0\.1:9\)$") as caught:
            await send_request(client, "GET", NAMESPACES, 10)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("source", ["HTTPS_PROXY", "proxy-url"])
async def test_proxy_that_is_not_of_http_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    document = kubeconfig("https://kubernetes.example")
    if source == "proxy-url":
        document["clusters"][0]["cluster"]["proxy-url"] = "socks5://127.0.0.1:9"
    else:
        monkeypatch.setenv(source, "socks5://127.0.0.1:9")
    with pytest.raises(UserError, match=f"{source}: 'socks5://127.0.0.1:9': not a proxy of HTTP"):
        await connect(write_kubeconfig(tmp_path, document))


# In a cluster


@pytest.fixture
def authority() -> Authority:
    return Authority.create("cluster")


@pytest.fixture
def account(tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a service account, as a Pod has it mounted."""
    folder = tmp_path / "account"
    folder.mkdir()
    (folder / "token").write_text("one")
    (folder / "ca.crt").write_bytes(authority.key_pair.certificate.public_bytes(Encoding.PEM))
    monkeypatch.setattr(module, "_ACCOUNT", folder)
    set_service_address(monkeypatch, "10.0.0.1", 443)
    return folder


def set_service_address(monkeypatch: pytest.MonkeyPatch, host: str, port: int) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(port))


def api_server_tls(folder: Path, authority: Authority, *names: str) -> ssl.SSLContext:
    credentials = authority.issue_server("kube-apiserver", tuple(parse_san(name) for name in names))
    write_key_pair(credentials, folder / "api.crt", folder / "api.key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "api.crt", folder / "api.key")
    return context


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_in_cluster_client_uses_the_mounted_ca_and_rereads_its_token(
    tmp_path: Path, authority: Authority, account: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    async with fake_apiserver(tmp_path, api_server_tls(tmp_path, authority, f"ip:{host}"), host) as fake:
        set_service_address(monkeypatch, host, fake.port)
        async with open_client(None) as client:
            assert await authorization(client, fake) == "Bearer one"
            (account / "token").write_text("two\n")
            assert await authorization(client, fake) == "Bearer two"


async def test_in_cluster_client_ignores_proxy_and_netrc(
    tmp_path: Path, authority: Authority, account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert account
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    (tmp_path / ".netrc").write_text("default login eve password secret\n")
    async with fake_apiserver(tmp_path, api_server_tls(tmp_path, authority, "ip:127.0.0.1")) as fake:
        set_service_address(monkeypatch, "127.0.0.1", fake.port)
        async with open_client(None) as client:
            assert await authorization(client, fake) == "Bearer one"


@pytest.mark.parametrize(
    ("names", "words"),
    [(("dns:elsewhere",), "IP address mismatch"), ((), "unable to get local issuer certificate")],
)
async def test_untrusted_api_server_receives_no_request(
    tmp_path: Path,
    authority: Authority,
    account: Path,
    monkeypatch: pytest.MonkeyPatch,
    names: tuple[str, ...],
    words: str,
) -> None:
    assert account
    issuer = authority if names else Authority.create("other")
    async with fake_apiserver(tmp_path, api_server_tls(tmp_path, issuer, *(names or ("ip:127.0.0.1",)))) as fake:
        set_service_address(monkeypatch, "127.0.0.1", fake.port)
        async with open_client(None) as client:
            with pytest.raises(UnreachedError, match=words):
                await send_request(client, "GET", NAMESPACES, 10)
        assert fake.seen == []


async def test_tls_server_name_of_the_kubeconfig_is_verified(
    tmp_path: Path, authority: Authority, account: Path
) -> None:
    async with fake_apiserver(tmp_path, api_server_tls(tmp_path, authority, "dns:kubernetes.default.svc")) as fake:
        document = kubeconfig(fake.url)
        cluster = document["clusters"][0]["cluster"]
        cluster["certificate-authority"] = "account/ca.crt"  # relative to the kubeconfig
        assert (account / "ca.crt").exists()
        async with open_client(write_kubeconfig(tmp_path, document)) as client:
            with pytest.raises(UnreachedError, match="IP address mismatch"):
                await send_request(client, "GET", NAMESPACES, 10)
        cluster["tls-server-name"] = "kubernetes.default.svc"
        async with open_client(write_kubeconfig(tmp_path, document)) as client:
            await send_request(client, "GET", NAMESPACES, 10)


def test_connection_of_a_request_that_timed_out_is_closed_before_the_event_loop(
    tmp_path: Path, authority: Authority, account: Path
) -> None:
    """An API server under load does not take part in the end of TLS in time."""
    document = kubeconfig("")
    document["clusters"][0]["cluster"]["certificate-authority"] = str(account / "ca.crt")

    async def request() -> None:
        async with open_client(write_kubeconfig(tmp_path, document)) as client:
            with pytest.raises(UnreachedError, match="no answer in time"):
                await send_request(client, "GET", NAMESPACES, 2)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with run_stuck_tls_server(api_server_tls(tmp_path, authority, "ip:127.0.0.1")) as url:
            document["clusters"][0]["cluster"]["server"] = url
            asyncio.run(request())
            gc.collect()
    assert [str(warning.message) for warning in caught] == []


@contextmanager
def run_stuck_tls_server(context: ssl.SSLContext) -> Iterator[str]:
    """Run a server that sends nothing after the handshake of its only connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as thread:
        accepted = thread.submit(lambda: context.wrap_socket(listener.accept()[0], server_side=True))
        yield f"https://127.0.0.1:{listener.getsockname()[1]}"
        accepted.result().close()


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("KUBERNETES_SERVICE_PORT", "Service host/port is not set"),
        ("token", "token file does not exist"),
        ("ca.crt", "certification file does not exist"),
    ],
)
async def test_missing_in_cluster_credential_is_named(
    account: Path, monkeypatch: pytest.MonkeyPatch, missing: str, words: str
) -> None:
    if missing.isupper():
        monkeypatch.delenv(missing)
    else:
        (account / missing).unlink()
    with pytest.raises(UserError, match=words) as caught:
        await connect(None)
    assert str(caught.value).startswith(f"{account}, KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT: ")
    assert "service account whose token is mounted" in caught.value.remedy


async def test_invalid_service_account_ca_is_refused(account: Path) -> None:
    (account / "ca.crt").write_text("none")
    with pytest.raises(UserError, match="unusable certificates"):
        await connect(None)
