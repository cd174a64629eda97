"""`podgate review --server`: a running server's decision, by dry-run reviews only."""

import asyncio
import gc
import json
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from certs.files import write_key_pair
from tests.cli.command_runner import Done, podgate
from tests.harness.server_process import POLICY, Files, Serving, pod, run_server
from tests.redis_servers import RedisServer, usual_names
from webhook.commands.simulator import Ask

pytest_plugins = ("tests.redis_servers.fixtures",)


def create_files(folder: Path, policy: str = POLICY) -> Files:
    files = Files.create(folder, policy)
    write_key_pair(files.caller, folder / "client.crt", folder / "client.key")
    (folder / "token").write_text(files.signer.token() + "\n")
    (folder / "other-token").write_text(files.other.token())
    return files


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Serving]:
    async with run_server(create_files(tmp_path)) as running:
        yield running


def make_pod(name: str, **spec: Any) -> dict[str, Any]:
    made = pod(**spec)
    return {**made, "metadata": {"name": name, "namespace": "payments", "labels": {"app": "web"}}}


def deployment() -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": template}
    return {"kind": "Deployment", "metadata": {"name": "web", "namespace": "payments"}, "spec": spec}


def server_flags(server: Serving) -> list[str]:
    folder = server.files.folder
    return [
        *("--server", f"https://{server.admission}", "--ca", str(server.files.pki.paths.client_ca)),
        *("--cert", str(folder / "client.crt"), "--key", str(folder / "client.key")),
        *("--token-file", str(folder / "token")),
    ]


async def review(*arguments: str, stdin: object) -> Done:
    """Run the command in a thread, because it runs an event loop of its own.

    The loop ends before the sockets of TLS connections are closed, which otherwise the end of the process does.
    """
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        done = await asyncio.to_thread(podgate, "review", "-", *arguments, stdin=json.dumps(stdin))
        gc.collect()
    return done


def make_list(*items: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "List", "items": list(items)}


async def test_server_gives_the_same_review_as_the_policy(server: Serving) -> None:
    objects = make_list(make_pod("p"), make_pod("q", schedulerName="mine"), deployment())
    local = await review("--policy", str(server.files.policy), "-o", "json", stdin=objects)
    remote = await review(*server_flags(server), "-o", "json", stdin=objects)
    assert remote.code == local.code == 3, remote.err
    assert [line["decision"] for line in remote.lines] == ["Admit", "Deny", "Admit"]
    assert [{**line, "trace": 0} for line in remote.lines] == [{**line, "trace": 0} for line in local.lines]
    assert remote.err == local.err == "3 reviewed: Admit 2, Deny 1\n"
    shown = await review(*server_flags(server), "-o", "yaml", stdin=objects)
    assert shown.out == (await review("--policy", str(server.files.policy), "-o", "yaml", stdin=objects)).out


CANARY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: canary
  match: {namespaces: [payments], podSelector: {matchLabels: {pod-template-hash: 7d4b6c9f5d}}}
  placement: {nodeSelector: {disk: ssd}}
- name: front
  match: {namespaces: [payments], podSelector: {matchLabels: {pod-template-hash: 5c8f4b, app: web}}}
"""


async def test_server_reports_what_a_verdict_depends_on(tmp_path: Path) -> None:
    files = create_files(tmp_path)
    files.policy.write_text(CANARY)
    refused = deployment()
    refused["spec"]["template"]["spec"]["nodeSelector"] = {"disk": "hdd"}
    async with run_server(files) as server:
        remote = await review(*server_flags(server), "-o", "json", stdin=refused)
    local = await review("--policy", str(files.policy), "-o", "json", stdin=refused)
    assert (remote.code, remote.lines[0]["decision"], remote.lines[0]["allowed"]) == (0, "Depends", None)
    assert remote.lines[0]["dependsOn"] == [
        {"service": "canary", "labels": ["pod-template-hash"], "denied": True},
        {"service": "front", "labels": ["pod-template-hash"], "denied": False},
        {"service": None, "labels": [], "denied": False},
    ]
    assert [{**line, "trace": 0} for line in remote.lines] == [{**line, "trace": 0} for line in local.lines]


async def check_reviews_charge_nothing(server: Serving) -> None:
    many = make_list(*(make_pod(f"p{index}") for index in range(5)))
    assert (await review(*server_flags(server), "-o", "json", stdin=many)).code == 0
    status = json.loads((await server.get("/status"))[1])
    (window,) = status["services"][0]["windows"]
    assert window["used"] == 0
    for _ in range(3):
        assert (await server.create(Ask(pod(), "payments", str(uuid4()))))["allowed"]
    done = await review(*server_flags(server), "-o", "json", stdin=many)
    assert (done.code, {line["status"]["code"] for line in done.lines}) == (3, {429})
    status = json.loads((await server.get("/status"))[1])
    assert status["services"][0]["breaker"]["state"] == "CLOSED", "a breaker counts no denials of dry runs"
    assert status["services"][0]["windows"][0]["used"] == 3


async def test_review_by_server_charges_nothing_and_reports_full_limits(server: Serving) -> None:
    await check_reviews_charge_nothing(server)


@pytest.mark.parametrize("redis_program", usual_names(), indirect=True)
async def test_review_by_server_charges_nothing_in_redis(tmp_path: Path, redis_server: RedisServer) -> None:
    async with run_server(create_files(tmp_path), "--store", redis_server.url, "--store-deadline", "30s") as running:
        await check_reviews_charge_nothing(running)


async def test_server_gives_no_verdict_on_an_unknown_label(tmp_path: Path) -> None:
    by_hash = POLICY.replace(
        "match: {namespaces: [payments]}",
        "match: {namespaces: [payments], podSelector: {matchLabels: {pod-template-hash: 5d4f8c7b9d}}}",
        1,
    )
    async with run_server(create_files(tmp_path, by_hash)) as server:
        done = await review(*server_flags(server), "-o", "json", stdin=deployment())
        local = await review("--policy", str(server.files.policy), "-o", "json", stdin=deployment())
    (remote,), (line,) = done.lines, local.lines
    assert (done.code, remote["decision"], remote["allowed"]) == (0, "Depends", None)
    assert {**remote, "trace": 0, "dependsOn": 0} == {**line, "trace": 0, "dependsOn": 0}


async def test_recorded_review_is_sent_as_a_dry_run(server: Serving) -> None:
    resource = {"group": "", "version": "v1", "resource": "pods"}
    request = {
        "uid": "r1",
        "resource": resource,
        "namespace": "payments",
        "operation": "CREATE",
        "userInfo": {"username": "alice"},
        "object": make_pod("p"),
        "dryRun": False,
    }
    recorded = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    done = await review(*server_flags(server), "-o", "json", stdin=recorded)
    assert (done.code, done.lines[0]["decision"]) == (0, "Admit")
    assert json.loads((await server.get("/status"))[1])["services"][0]["windows"][0]["used"] == 0


async def test_explain_names_the_service_and_policy_of_the_server(server: Serving) -> None:
    done = await review(*server_flags(server), "--explain", stdin=make_pod("p"))
    assert "\n#   mutate   server   service: payment-api\n" in done.out
    assert "\n#   validate server   policy-hash: " in done.out


def remove_options(arguments: list[str], *options: str) -> list[str]:
    for option in options:
        at = arguments.index(option)
        arguments = arguments[:at] + arguments[at + 2 :]
    return arguments


async def test_refused_caller_and_wrong_field_have_a_remedy(server: Serving) -> None:
    usual, folder = server_flags(server), server.files.folder
    refused = await review(*remove_options(usual, "--token-file"), stdin=make_pod("p"))
    assert (refused.code, refused.out) == (2, "")
    assert "/mutate: HTTP 401: " in refused.error
    assert "give --cert, --key and --token-file of an identity that may send reviews" in refused.error
    other = await review(
        *remove_options(usual, "--token-file"), "--token-file", str(folder / "other-token"), stdin=make_pod("p")
    )
    assert (other.code, "HTTP 401" in other.error or "HTTP 403" in other.error) == (2, True)
    wrong = await review(*usual, stdin=make_pod("p", tolerations=[{"tolerationSeconds": "soon"}]))
    assert wrong.code == 2
    assert wrong.error.startswith("-: Pod payments/p: spec.tolerations[0].tolerationSeconds: ")


async def test_untrusted_unreachable_and_foreign_servers_are_named(server: Serving) -> None:
    usual = server_flags(server)
    strange = await review(*remove_options(usual, "--ca"), stdin=make_pod("p"))
    assert strange.code == 2
    assert "/mutate: self-signed certificate in certificate chain: check the URL, and --ca" in strange.error
    named_wrong = await review(*usual, "--tls-server-name", "elsewhere.example", stdin=make_pod("p"))
    assert named_wrong.code == 2
    assert "elsewhere.example" in named_wrong.error
    two = make_list(make_pod("p"), make_pod("q", schedulerName="mine"))
    gone = await review(*remove_options(usual, "--server"), "--server", "https://127.0.0.1:1", stdin=two)
    assert (gone.code, gone.error.startswith("https://127.0.0.1:1/mutate: ")) == (2, True)
    assert "/mutate: Connection refused: check the URL" in gone.error
    bare = await review(*remove_options(remove_options(usual, "--cert"), "--key"), stdin=two)
    assert (bare.code, "certificate required: check the URL" in bare.error) == (2, True)
    plain = await review(*remove_options(usual, "--server"), "--server", f"https://{server.plain}", stdin=two)
    assert (plain.code, "/mutate: wrong version number: check the URL" in plain.error) == (2, True)
    for done in (strange, named_wrong, gone, bare, plain):
        assert "ssl" not in done.error, "a message without names of a library"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "Missing option '--policy' or '--server'"),
        (["--policy", "p", "--server", "https://s"], "--policy and --server exclude each other"),
        (["--server", "https://s", "--namespaces", "n"], "--namespaces is for --policy"),
        (["--policy", "p", "--ca", "c"], "--ca, --cert, --key, --token-file and --tls-server-name need --server"),
        (["--server", "https://s", "--cert", "c"], "--cert and --key go together"),
        (["--server", "http://s"], "--server: not the URL of an admission port: write one such as https://"),
        (["--server", "https://me:secret@s"], "--server: not the URL of an admission port"),
        (["--server", "https://s/s3cr3t"], "--server: not the URL of an admission port"),
        (["--server", "https://s", "--ca", "nowhere"], "nowhere: cannot be read: No such file or directory"),
        (["--server", "https://s", "--ca", "/dev/zero"], "/dev/zero: more than 64 MiB"),
        (["--server", "https://s", "--token-file", "/dev/zero"], "/dev/zero: more than 64 MiB"),
        (
            ["--server", "https://s", "--cert", "secret", "--key", "secret"],
            "secret, secret: not PEM, or certificate and key do not match",
        ),
        (["--server", "https://s", "--token-file", "secret"], "secret: holds no token: give a file with one JWT"),
    ],
)
async def test_invalid_options_are_one_line_without_secrets(
    arguments: list[str], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret").write_text("s3cr3t words\n")
    done = await review(*arguments, stdin=make_pod("p"))
    assert (done.code, done.out) == (2, "")
    assert reason in done.error
    assert "s3cr3t" not in done.err
    assert ":secret@" not in done.err
