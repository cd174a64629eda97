"""Reduced mode: a secret path instead of an identity; never disclosed, with visible warnings."""

import asyncio
import json
import re
import ssl
from dataclasses import fields
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from multidict import CIMultiDict, CIMultiDictProxy

from tests.authentication.secret_path import OTHER, SECRET, Reduced, run_reduced_server
from tests.core.policy_changes.policy_review import config_map_review
from tests.harness.raw_http import BODY, format_length, head, line
from tests.harness.server_process import POLICY, Files, Serving, pod, run_server
from tests.harness.trace_receiver import trace_receiver
from webhook import settings
from webhook.authentication.reasons import AuthFailure
from webhook.authentication.secret_path_file import SecretPathFile, SecretPathStrategy, read_paths
from webhook.cli import root
from webhook.commands.simulator import Ask, build_admission_review, prepare_for_mutate
from webhook.core.admission.decision import Half
from webhook.errors import AuthenticationError, UserError

REFUSED = 'podgate_refused_calls_total{reason="authentication_path"}'


async def call(server: Serving, path: str, body: bytes = BODY, **options: Any) -> int:
    code, _ = await server.post(path, body, token="", **options)
    return code


# --- admission ---


async def test_only_callers_of_the_secret_path_are_admitted(tmp_path: Path) -> None:
    async with run_reduced_server(tmp_path) as server:
        code, text = await server.post(f"/{SECRET}/mutate?timeout=10s", BODY, token="")
        assert (code, json.loads(text)["response"]["allowed"]) == (200, True)
        payment = Ask(pod(), "payments", "uid-2")
        body = json.dumps(build_admission_review(payment, prepare_for_mutate(payment), Half.VALIDATE)).encode()
        code, text = await server.post(f"/{SECRET}/validate", body, token="")
        assert (code, json.loads(text)["response"]["allowed"]) == (200, False)
        assert await call(server, f"/{SECRET}/validate-policy", config_map_review(POLICY)) == 200
        wrong = (
            "/",
            "/mutate",
            "//mutate",
            f"/{SECRET}",
            f"/{SECRET}mutate",
            f"/{SECRET[:-1]}/mutate",
            f"/{SECRET}x/mutate",
            f"/{SECRET.swapcase()}/mutate",
            f"/{SECRET}//mutate",
            f"//{SECRET}/mutate",
            f"/x/{SECRET}/mutate",
            f"/{SECRET}/v1/outcomes",
            "/v1/outcomes",
            f"/mutate?{SECRET}",
            f"/{OTHER}/mutate",
            f"/{sha256(SECRET.encode()).hexdigest()}/mutate",
        )
        for number, path in enumerate(wrong, 1):
            assert await server.post(path, BODY, token="") == (404, "not found\n"), path
            assert await server.metric(REFUSED) == number, path
        assert await server.metric('podgate_calls_total{client_id="reduced-mode",role="apiserver"}') == 2
        assert await server.metric("podgate_reduced_mode") == 1


async def test_requests_below_the_path_are_checked_as_usual(tmp_path: Path) -> None:
    async with run_reduced_server(tmp_path, "--max-body-bytes", "100000") as server:
        assert await call(server, f"/{SECRET}/nowhere") == 404
        assert await call(server, f"/{SECRET}/mutate", b"{}") == 400
        assert await call(server, f"/{SECRET}/mutate", b"x" * 100_001) == 413
        assert await call(server, f"/{SECRET}/mutate", headers={"Content-Type": "text/plain"}) == 415


async def test_certificates_tokens_and_proxy_headers_are_ignored(tmp_path: Path) -> None:
    async with run_reduced_server(tmp_path) as server:
        client_context = server.files.pki.context(server.files.caller)
        forwarded = {"X-Forwarded-Client-Cert": "Subject=x"}
        for path, code in (("/mutate", 404), (f"/{SECRET}/mutate", 200)):
            assert (await server.post(path, BODY, context=client_context, headers=forwarded))[0] == code


async def test_new_path_is_accepted_beside_the_old_one_until_that_is_removed(tmp_path: Path) -> None:
    async with run_reduced_server(tmp_path) as server:
        files = server.files
        assert isinstance(files, Reduced)
        files.path_file.write_text(f"{OTHER}\n{SECRET}\n")
        await server.wait_for_metric('podgate_file_reloads_total{file="reduced path",result="success"}', 2)
        assert [await call(server, f"/{secret}/mutate") for secret in (OTHER, SECRET)] == [200, 200]
        files.path_file.write_text("not a path\n")
        await server.wait_for_metric('podgate_file_reloads_total{file="reduced path",result="failure"}', 1)
        assert [await call(server, f"/{secret}/mutate") for secret in (OTHER, SECRET)] == [200, 200]
        files.path_file.write_text(f"{OTHER}\n")
        await server.wait_for_metric('podgate_file_reloads_total{file="reduced path",result="success"}', 3)
        assert [await call(server, f"/{secret}/mutate") for secret in (OTHER, SECRET)] == [200, 404]


# --- disclosure ---


async def test_path_is_disclosed_nowhere(tmp_path: Path) -> None:
    """Not in answers, the most verbose log, traces, the record, or pages of the plain port."""
    record = tmp_path / "events.jsonl"
    outputs: list[str] = []
    async with (
        trace_receiver() as (endpoint, received),
        run_reduced_server(
            tmp_path,
            *("--otlp-endpoint", endpoint, "--trace-ratio", "1", "--log-sample", "1", "--record", str(record)),
            *("--max-body-bytes", "100000"),
        ) as server,
    ):
        files = server.files
        assert isinstance(files, Reduced)
        good, guess = f"/{SECRET}/mutate", f"/{SECRET[:-1]}0/mutate"
        for path in (good, guess, f"/{SECRET}", f"/{SECRET}/nowhere", f"/{SECRET}/v1/outcomes"):
            for body in (BODY, b"", b"{}", b"[" * 1_000, b"x" * 100_001):
                outputs += [(await server.post(path, body, token=""))[1]]
        for start in (f"GET {good} HTTP/1.1", f"POST {good} HTTP/9.9", f"{SECRET} {good}", f"POST {good} HTTP/1.0"):
            async with line(server) as connection:
                connection.send(head(server, format_length(), start=start, token=""), BODY)
                outputs += [(await connection.answer()).decode()]
        async with line(server) as connection:
            connection.send(f"POST {good} HTTP/1.1\r\nHost: {SECRET}\r\n{SECRET}\0: x\r\n\r\n".encode())
            outputs += [(await connection.rest()).decode()]
        files.path_file.write_text(f"{SECRET}\n{SECRET} and more\n")
        await server.wait_for_metric('podgate_file_reloads_total{file="reduced path",result="failure"}', 1)
        outputs += [
            (await server.get(page))[1] for page in ("/healthz", "/readyz", "/status", "/metrics", f"/{SECRET}")
        ]
        arguments = ["status", "-o", "table", "--server", f"http://{server.plain}"]
        shown = await asyncio.to_thread(CliRunner().invoke, root, arguments)
        outputs += [shown.output]
    traces = [str(body) + repr(body.SerializeToString()) for *_, body in received]
    log = (tmp_path / "server-0.log").read_text()
    assert "review mutate" in "".join(traces)
    assert '"msg":"call refused"' in log
    assert record.read_text()
    for output in (*outputs, *traces, log, record.read_text()):
        assert SECRET not in output
        assert SECRET[:-1] not in output
        assert SECRET[:12] not in output


async def test_reduced_mode_is_visible_in_readiness_status_and_log(tmp_path: Path) -> None:
    async with run_reduced_server(tmp_path) as server:
        assert await server.get("/readyz") == (200, "ok (reduced mode: callers are not authenticated)\n")
        assert json.loads((await server.get("/status"))[1])["clientIdentity"] == "reduced"
        shown = await asyncio.to_thread(
            CliRunner().invoke, root, ["status", "-o", "table", "--server", f"http://{server.plain}"]
        )
        assert "\nreduced mode: callers are not authenticated\n" in shown.output
    log = (tmp_path / "server-0.log").read_text()
    assert re.search(r'"level":"warning","msg":"reduced mode: callers are not authenticated', log)


async def test_other_modes_do_not_report_reduced_mode(tmp_path: Path) -> None:
    async with run_server(Files.create(tmp_path)) as server:
        assert await server.get("/readyz") == (200, "ok\n")
        assert json.loads((await server.get("/status"))[1])["clientIdentity"] == "mutual"
        assert "podgate_reduced_mode 0.0" in (await server.get("/metrics"))[1]
        assert (await server.post(f"/{SECRET}/mutate", BODY))[0] == 404
    assert "reduced" not in (tmp_path / "server-0.log").read_text()


# --- settings ---


ERRORS = (
    ({"--client-identity": "reduced"}, "--reduced-path-file: missing"),
    ({"--reduced-path-file": "path"}, "--reduced-path-file: belongs to --client-identity reduced, and this is mutual"),
    ({"--client-identity": "forwarded", "--reduced-path-file": "path"}, "and this is forwarded: leave it out"),
    ({"--forwarded-ca": "ca.crt"}, "--forwarded-ca: belongs to --client-identity forwarded, and this is mutual"),
    ({"--client-identity": "forwarded"}, "--forwarded-ca: missing"),
    ({"--client-identity": "reduced", "--client-ca": "ca.crt"}, "--client-ca: belongs to --client-identity mutual or"),
    ({"--client-identity": "reduced", "--identities": "path"}, "--identities: belongs to --client-identity mutual or"),
    ({"--client-identity": "reduced", "--jwks": "path"}, "--jwks: belongs to --client-identity mutual or forwarded"),
    (
        {"--client-identity": "reduced", "--token-leeway": "1s"},
        "--token-leeway: belongs to --client-identity mutual or",
    ),
    ({"--client-identity": "none"}, "--client-identity: 'none': write one of mutual, forwarded, reduced"),
    ({"--client-identity": "Reduced"}, "--client-identity: 'Reduced': write one of"),
    ({"--client-identity": ""}, "--client-identity: '': write one of"),
)


@pytest.mark.parametrize(("flags", "message"), ERRORS)
def test_settings_of_another_mode_are_errors(tmp_path: Path, flags: dict[str, str], message: str) -> None:
    files = Reduced.create_in(tmp_path)
    base = {"--tls-cert": "server.crt", "--tls-key": "server.key", "--policy": "policy.yaml"}
    arguments = [
        f"{name}={tmp_path / value if '.' in value or value == 'path' else value}"
        for name, value in {**base, **flags}.items()
    ]
    result = CliRunner().invoke(root, ["serve", *arguments])
    assert isinstance(result.exception, UserError)
    assert message in str(result.exception)
    assert files.path_file.read_text().strip() not in str(result.exception)


def test_settings_of_another_mode_are_errors_in_variables_too(tmp_path: Path) -> None:
    files = Reduced.create_in(tmp_path)
    required = {"tls_cert": str(files.pki.paths.certificate), "tls_key": str(files.pki.paths.key), "policy": "p"}
    with pytest.raises(UserError, match="PODGATE_REDUCED_PATH_FILE: belongs to --client-identity reduced"):
        settings.parse(required, {"PODGATE_REDUCED_PATH_FILE": str(files.path_file)})
    by_environment = {"PODGATE_CLIENT_IDENTITY": "reduced", "PODGATE_REDUCED_PATH_FILE": str(files.path_file)}
    assert settings.parse(required, by_environment).reduced_path_file == files.path_file


def test_the_page_has_the_limits_that_are_in_force() -> None:
    page = (Path(__file__).parents[2] / "docs/reduced-mode.md").read_text()
    rows = re.findall(r"^\| `(--[a-z-]+)` \| (.+?) \| (.+?) \|$", page, re.MULTILINE)
    mib = {str(size << 20): f"{size} MiB" for size in (3, 7)}
    declared = {settings.name_flag(item.name): item.metadata for item in fields(settings.Settings)}
    stricter = {
        flag: tuple(mib.get(metadata[key], metadata[key]) for key in ("default", "reduced"))
        for flag, metadata in declared.items()
        if metadata["reduced"] != metadata["default"]
    }
    assert {flag: tuple(values) for flag, *values in rows} == stricter


async def test_no_client_is_asked_for_a_certificate(tmp_path: Path) -> None:
    """A request for a certificate would suggest that the server verifies it."""
    async with run_reduced_server(tmp_path) as server:
        host, port = server.admission.rsplit(":", 1)
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
        _, writer = await asyncio.open_connection(host, int(port), ssl=context)
        assert writer.get_extra_info("ssl_object").version() == "TLSv1.3"
        writer.close()


# --- the file ---


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds 0 lines"),
        ("\n\n", "holds 0 lines"),
        (f"{SECRET}\n{OTHER}\n{SECRET}x\n", "holds 3 lines"),
        (f"{SECRET}\n{SECRET}\n", "two different paths"),
        (f"{SECRET[:31]}\n", ":1:1: .not shown.: 31 characters"),
        (f"{SECRET}\n{'a1b2' * 40}\n", ":2:1: .not shown.: 160 characters"),
        (f"/{SECRET}\n", ":1:1: .not shown.: "),
        (f"{SECRET} {OTHER}\n", ":1:1: .not shown.: "),
        (f"{SECRET}ä\n", ":1:1: .not shown.: "),
        (f"{SECRET.upper()}\n", ":1:1: .not shown.: "),  # the API server does not accept it
        (f"{SECRET}_x\n", ":1:1: .not shown.: "),
        (f"{'podgate' * 5}\n", "could be guessed"),
        (f"{'0' * 64}\n", "could be guessed"),
    ],
)
def test_invalid_path_is_rejected_without_quoting_it(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "path"
    file.write_text(content)
    with pytest.raises(UserError, match=message) as refused:
        SecretPathFile(file)
    for part in filter(None, content.split()):
        assert part not in f"{refused.value}{refused.value.remedy}"


async def test_the_command_of_the_remedy_makes_a_good_file(tmp_path: Path) -> None:
    file = tmp_path / "path"
    file.write_text("")
    with pytest.raises(UserError) as refused:
        SecretPathFile(file)
    command = refused.value.remedy.split("letters and digits: ")[1]
    for _ in range(20):
        process = await asyncio.create_subprocess_shell(command, stdout=asyncio.subprocess.PIPE)
        output, _ = await process.communicate()
        [path] = read_paths(output, file)
        assert len(path) == 64


async def test_path_of_any_bytes_is_rejected_as_a_wrong_path(tmp_path: Path) -> None:
    file = tmp_path / "path"
    file.write_text(SECRET)
    strategy, headers = SecretPathStrategy(SecretPathFile(file)), CIMultiDictProxy(CIMultiDict[str]())
    for path in (
        "",
        "/",
        "mutate",
        "/ä/mutate",
        "/\udcff/mutate",
        "/\0/mutate",
        f"/{SECRET}\udcff/mutate",
        "/" * 8_000,
    ):
        with pytest.raises(AuthenticationError) as refused:
            strategy.authenticate(None, headers, path)
        assert (refused.value.reason, refused.value.status) == (AuthFailure.PATH, 404)


# --- the webhook configurations ---


def test_the_configurations_call_by_the_first_path(tmp_path: Path) -> None:
    files = Reduced.create_in(tmp_path, OTHER, SECRET)
    command = ["policy", "webhooks", "--policy", str(files.policy), "--ca", str(tmp_path / "ca.crt")]
    for flags, prefix in ((), f"/{OTHER}/"), (("--url", "https://10.0.0.1:8443"), f"https://10.0.0.1:8443/{OTHER}/"):
        done = CliRunner().invoke(root, [*command, "--path-file", str(files.path_file), "-o", "json", *flags])
        assert done.exit_code == 0, done.output
        hooks = [hook["clientConfig"] for item in json.loads(done.output)["items"] for hook in item["webhooks"]]
        targets = {client["service"]["path"] if "service" in client else client["url"] for client in hooks}
        assert targets == {f"{prefix}{route}" for route in ("mutate", "validate", "validate-policy")}
        assert SECRET not in done.output


def test_a_bad_path_file_is_named_by_the_command(tmp_path: Path) -> None:
    files = Reduced.create_in(tmp_path, "short")
    command = ["policy", "webhooks", "--policy", str(files.policy), "--ca", str(tmp_path / "ca.crt")]
    for name, message in (("path", ":1:1: (not shown): "), ("none", "none")):
        done = CliRunner().invoke(root, [*command, "--path-file", str(tmp_path / name)])
        assert isinstance(done.exception, UserError)
        assert message in str(done.exception)
