from dataclasses import fields
from pathlib import Path

import pytest

from tests.cli.running import installed, podgate
from webhook.errors import UserError
from webhook.settings import Settings, flag_of, parse, variable_of

FILES = ("tls_cert", "tls_key", "client_ca", "jwks", "identities")


@pytest.fixture
def flags(tmp_path: Path) -> dict[str, str | None]:
    for name in FILES:
        (tmp_path / name).touch()
    return {**{name: str(tmp_path / name) for name in FILES}, "policy": str(tmp_path / "policy.yaml")}


def mistakes(flags: dict[str, str | None], environment: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(UserError) as caught:
        parse(flags, environment or {})
    head, *lines = str(caught.value).splitlines()
    assert head == "settings:"
    return [line.strip() for line in lines]


def test_defaults_stand_where_nothing_is_said(flags: dict[str, str | None]) -> None:
    settings = parse(flags, {})
    assert (str(settings.listen), str(settings.plain_listen)) == ("0.0.0.0:8443", "0.0.0.0:8081")
    assert settings.keep_alive_seconds == 120
    assert settings.max_body_bytes == 7 << 20
    assert settings.otlp_endpoint is None
    assert not settings.policy.exists(), "the policy may come later: the server is not ready until then"


def test_flags_win_over_variables_and_variables_over_defaults(flags: dict[str, str | None]) -> None:
    environment = {"PODGATE_DRAIN": "2s", "PODGATE_GRACE": "3s", "PODGATE_POLICY": "elsewhere"}
    settings = parse({**flags, "drain_seconds": "1.5s"}, environment)
    assert (settings.drain_seconds, settings.grace_seconds, settings.keep_alive_seconds) == (1.5, 3, 120)
    assert str(settings.policy) == flags["policy"]


def test_every_mistake_is_told_at_once_with_the_flag_or_variable_it_came_from(flags: dict[str, str | None]) -> None:
    flags |= {"tls_cert": "nowhere.crt", "jwks": None, "listen": "8443", "store": "http://x", "policy": ""}
    environment = {
        "PODGATE_DRAIN": "15",
        "PODGATE_LOG_SAMPLE": "many",
        "PODGATE_TLS_KYE": "x",
        "PODGATE_TRACE_RATIO": "2",
    }
    assert mistakes(flags, environment) == [
        "--policy: '': write a path",
        "--store: 'http://x': write memory, or the URL of a Redis, such as redis://redis.podgate-system.svc:6379/0",
        "--tls-cert: 'nowhere.crt': there is no such file",
        "--jwks: missing: public keys that tokens are signed with, JWKS; watched: give --jwks or PODGATE_JWKS",
        "--listen: '8443': write HOST:PORT, such as 0.0.0.0:8443 (port 0 takes a free one)",
        "PODGATE_DRAIN: '15': not a Go duration: write a number with a unit, such as 500ms, 30s, 5m or 24h",
        "PODGATE_LOG_SAMPLE: 'many': write a whole number, 0 or more",
        "PODGATE_TRACE_RATIO: '2': write a ratio from 0 to 1, such as 0.01",
        "PODGATE_TLS_KYE: no such setting: see podgate serve --help",
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("listen", ""),
        ("listen", "host:"),
        ("listen", "host:70000"),
        ("listen", "host:-1"),
        ("listen", "host:²"),
        ("listen", "host:" + "9" * 5000),
        ("drain_seconds", "-1s"),
        ("body_timeout_seconds", "0s"),
        ("drain_seconds", "soon"),
        ("max_body_bytes", "0"),
        ("max_body_bytes", "7Mi"),
        ("max_body_bytes", "٣"),
        ("log_sample", "-1"),
        ("trace_ratio", "nan"),
        ("trace_ratio", "half"),
        ("otlp_endpoint", "collector:4318"),
        ("otlp_endpoint", "http://"),
        ("otlp_endpoint", "http://[broken"),
        ("token_leeway_seconds", "31s"),
        ("policy", ""),
        ("cluster", "Prod"),
        ("cluster", "fleet"),
    ],
)
def test_a_bad_value_is_named(flags: dict[str, str | None], name: str, text: str) -> None:
    (mistake,) = mistakes({**flags, name: text})
    assert mistake.startswith(f"{flag_of(name)}: {text!r}: ")


@pytest.mark.parametrize(
    ("text", "shown"),
    [("0.0.0.0:0", "0.0.0.0:0"), ("[::1]:8443", "[::1]:8443"), (":8443", ":8443"), ("localhost:1", "localhost:1")],
)
def test_addresses(flags: dict[str, str | None], text: str, shown: str) -> None:
    assert str(parse({**flags, "listen": text}, {}).listen) == shown


def test_what_kubernetes_puts_into_every_container_is_no_mistake(flags: dict[str, str | None]) -> None:
    links = {
        "PODGATE_SERVICE_HOST": "10.0.0.7",
        "PODGATE_SERVICE_PORT": "443",
        "PODGATE_SERVICE_PORT_HTTPS": "443",
        "PODGATE_PORT": "tcp://10.0.0.7:443",
        "PODGATE_PORT_443_TCP": "tcp://10.0.0.7:443",
        "PODGATE_PORT_443_TCP_PROTO": "tcp",
        "PODGATE_PORT_443_TCP_PORT": "443",
        "PODGATE_PORT_443_TCP_ADDR": "10.0.0.7",
        "PODGATE_METRICS_SERVICE_HOST": "10.0.0.8",
        "PODGATE_METRICS_PORT_8081_TCP_ADDR": "10.0.0.8",
    }
    assert parse(flags, {**links, "HOME": "/", "NOT_PODGATE_X": "x"})
    assert mistakes(flags, {**links, "PODGATE_SERVICE": "x"}) == [
        "PODGATE_SERVICE: no such setting: see podgate serve --help"
    ]


def test_every_setting_is_a_flag_with_its_default_in_the_help() -> None:
    text = " ".join(podgate("serve", "--help").out.split())
    for item in fields(Settings):
        declared = item.metadata
        assert f"{flag_of(item.name)} TEXT {declared['meaning']}" in text
        if declared["default"] is not None:
            assert f"{declared['meaning']} [default: {declared['default']}]" in text
    assert "--tls-cert is PODGATE_TLS_CERT" in text
    assert variable_of("drain_seconds") == "PODGATE_DRAIN"


def test_serve_tells_all_of_it_and_exits_2() -> None:
    done = installed("serve", "--listen", "x", "--drain", "x")
    lines = done.err.splitlines()
    assert (done.code, done.out, lines[0]) == (2, "", "error: settings:")
    assert [line.split(":")[0].strip() for line in lines[1:]] == [
        "--policy", "--tls-cert", "--tls-key", "--client-ca", "--jwks", "--identities", "--listen", "--drain",
    ]  # fmt: skip


def test_a_shutdown_may_wait_for_nothing(flags: dict[str, str | None]) -> None:
    parsed = parse({**flags, "drain_seconds": "0s", "grace_seconds": "0"}, {})
    assert (parsed.drain_seconds, parsed.grace_seconds) == (0, 0)


def test_without_a_policy_it_takes_that_of_its_cluster(
    flags: dict[str, str | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags["policy"] = None
    (token := tmp_path / "token").write_text("one")
    monkeypatch.setattr("webhook.settings.parsing._SERVICE_ACCOUNT_TOKEN", token)
    inside = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert parse(flags, inside).policy is None
    assert parse({**flags, "kubeconfig": str(token)}, {}).kubeconfig == token
    [outside] = mistakes(flags)
    token.unlink()
    [without_token] = mistakes(flags, inside)
    assert outside == without_token
    assert outside.startswith("--policy: missing, and this is no Pod with a service account's token: give --policy")
