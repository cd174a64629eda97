"""Settings from flags and variables: defaults, precedence, and errors."""

from dataclasses import fields
from pathlib import Path

import pytest

from certs.dual_port_rollover import RENEWAL_LIFETIME_SECONDS_MIN
from tests.cli.command_runner import podgate, run_installed
from webhook.errors import UserError
from webhook.settings import (
    CLIENT_VARIABLES,
    ControllerSettings,
    ExtenderSettings,
    ProcessSettings,
    Settings,
    name_flag,
    name_variable,
    parse,
    parse_as,
)
from webhook.support.kubeconfig import Kubeconfig

NO_KEYS = (
    "--jwks: missing: nothing says by which keys tokens are verified: "
    "give one of --jwks, --jwks-url and --cluster-keys true"
)
FILES = ("tls_cert", "tls_key", "client_ca", "jwks", "identities")


@pytest.fixture
def flags(tmp_path: Path) -> dict[str, str | None]:
    for name in FILES:
        (tmp_path / name).touch()
    return {**{name: str(tmp_path / name) for name in FILES}, "policy": str(tmp_path / "policy.yaml")}


def list_mistakes(flags: dict[str, str | None], environment: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(UserError) as caught:
        parse(flags, environment or {})
    head, *lines = str(caught.value).splitlines()
    assert head == "settings:"
    return [line.strip() for line in lines]


def test_defaults_apply_without_flags_and_variables(flags: dict[str, str | None]) -> None:
    settings = parse(flags, {})
    assert (str(settings.listen), str(settings.plain_listen)) == ("0.0.0.0:8443", "0.0.0.0:8081")
    assert settings.keep_alive_seconds == 120
    assert settings.max_body_bytes == 7 << 20
    assert settings.otlp_endpoint is None
    assert not settings.policy.exists(), "the policy may be created later: the server is not ready until then"


def test_flags_override_variables_and_variables_override_defaults(flags: dict[str, str | None]) -> None:
    environment = {"PODGATE_DRAIN": "2s", "PODGATE_GRACE": "3s", "PODGATE_POLICY": "elsewhere"}
    settings = parse({**flags, "drain_seconds": "1.5s"}, environment)
    assert (settings.drain_seconds, settings.grace_seconds, settings.keep_alive_seconds) == (1.5, 3, 120)
    assert str(settings.policy) == flags["policy"]


def test_all_mistakes_are_reported_at_once_with_their_flag_or_variable(flags: dict[str, str | None]) -> None:
    flags |= {"tls_cert": "nowhere.crt", "jwks": None, "listen": "8443", "store": "http://x", "policy": ""}
    environment = {
        "PODGATE_DRAIN": "15",
        "PODGATE_LOG_SAMPLE": "many",
        "PODGATE_TLS_KYE": "x",
        "PODGATE_TRACE_RATIO": "2",
    }
    assert list_mistakes(flags, environment) == [
        "--policy: '': write a path",
        "PODGATE_TRACE_RATIO: '2': write a ratio from 0 to 1, such as 0.01",
        "--store: 'http://x': write memory, or the URL of a Redis, such as redis://redis.podgate-system.svc:6379/0",
        "--tls-cert: 'nowhere.crt': there is no such file",
        "--listen: '8443': write HOST:PORT, such as 0.0.0.0:8443 (port 0 takes a free one)",
        "PODGATE_DRAIN: '15': not a Go duration: write a number with a unit, such as 500ms, 30s, 5m or 24h",
        "PODGATE_LOG_SAMPLE: 'many': write a whole number, 0 or more",
        NO_KEYS,
        "PODGATE_TLS_KYE: no such setting: did you mean PODGATE_TLS_KEY? see podgate serve --help",
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("listen", ""),
        ("listen", "host:"),
        ("listen", "host:70000"),
        ("listen", "host:-1"),
        ("listen", "host:²"),
        ("listen", "host:" + "9" * 50),
        ("drain_seconds", "-1s"),
        ("body_timeout_seconds", "0s"),
        ("drain_seconds", "soon"),
        ("max_body_bytes", "0"),
        ("max_body_bytes", "7Mi"),
        ("max_body_bytes", "٣"),
        ("log_sample", "-1"),
        ("trace_ratio", "nan"),
        ("trace_ratio", "half"),
        ("trace_parent", "follow"),
        ("otlp_endpoint", "collector:4318"),
        ("otlp_endpoint", "http://"),
        ("otlp_endpoint", "http://[broken"),
        ("token_leeway_seconds", "31s"),
        ("jwks_url", "http://issuer.example/jwks.json"),
        ("jwks_url", "issuer.example/jwks.json"),
        ("jwks_url", "https://"),
        ("jwks_url", "file:///etc/jwks.json"),
        ("jwks_max_stale_seconds", "0"),
        ("cluster_keys", "yes"),
        ("denied_tokens", "nowhere.yaml"),
        ("token_binding", "strict"),
        ("policy", ""),
        ("cluster", "Prod"),
        ("cluster", "fleet"),
        ("console_listen", "0.0.0.0:8084"),
        ("console_listen", "podgate.example.com:8084"),
        ("console_host", "https://podgate.example.com"),
        ("console_host", "podgate.example.com:443"),
    ],
)
def test_bad_value_is_named(flags: dict[str, str | None], name: str, text: str) -> None:
    (mistake,) = list_mistakes({**flags, name: text})
    assert mistake.startswith(f"{name_flag(name)}: {text!r}: ")


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("listen", "host:" + "9" * 5000, f"host:{'9' * 75}..."),
        ("jwks_url", "https://me:secret@issuer.example/", "https://***@issuer.example/"),
        ("jwks_url", "https://issuer.example/#keys", "https://issuer.example/?***"),
        ("denied_tokens", "a-password", "***"),
    ],
)
def test_bad_value_is_shortened_and_masked(flags: dict[str, str | None], name: str, text: str, shown: str) -> None:
    (mistake,) = list_mistakes({**flags, name: text})
    assert mistake.startswith(f"{name_flag(name)}: {shown!r}: ")


@pytest.mark.parametrize(
    ("text", "shown"),
    [("0.0.0.0:0", "0.0.0.0:0"), ("[::1]:8443", "[::1]:8443"), (":8443", ":8443"), ("localhost:1", "localhost:1")],
)
def test_listen_addresses_are_parsed(flags: dict[str, str | None], text: str, shown: str) -> None:
    assert str(parse({**flags, "listen": text}, {}).listen) == shown


def test_service_variables_of_kubernetes_are_no_mistake(flags: dict[str, str | None]) -> None:
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
    assert list_mistakes(flags, {**links, "PODGATE_SERVICE": "x"}) == [
        "PODGATE_SERVICE: no such setting: did you mean PODGATE_SERVER? see podgate serve --help"
    ]


def test_context_is_part_of_the_kubeconfig_and_needs_one(flags: dict[str, str | None], tmp_path: Path) -> None:
    (file := tmp_path / "config").write_text("")
    listed = f"{tmp_path}/missing:{file}"
    found = parse({**flags, "kubeconfig": listed, "context": "prod"}, {}).kubeconfig
    assert found == Kubeconfig((tmp_path / "missing", file), "prod")
    assert list_mistakes({**flags, "context": "prod"}) == [
        "--context: belongs to --kubeconfig: give that too, or leave this out"
    ]
    assert list_mistakes({**flags, "kubeconfig": f"{tmp_path}/missing"})[0].startswith("--kubeconfig: ")


@pytest.mark.parametrize("kind", [Settings, ControllerSettings, ExtenderSettings])
def test_variables_of_client_commands_stop_no_process(kind: type[ProcessSettings]) -> None:
    environment = dict.fromkeys(CLIENT_VARIABLES, "http://127.0.0.1:8081")
    with pytest.raises(UserError) as caught:
        parse_as(kind, {}, {**environment, "PODGATE_SERVERS": "x"})
    named = [line.strip() for line in str(caught.value).splitlines() if line.strip().startswith("PODGATE_")]
    assert named == ["PODGATE_SERVERS: no such setting: did you mean PODGATE_SERVER? see podgate serve --help"]


def test_every_setting_is_a_flag_with_its_default_in_the_help() -> None:
    def join_words(words: str) -> str:
        return " ".join(words.split()).replace("- ", "-")  # click breaks lines at dashes, too

    text = join_words(podgate("serve", "--help").out)
    for item in fields(Settings):
        declared = item.metadata
        shown = f"{name_flag(item.name)} TEXT {declared['meaning']}"
        default, reduced = declared["default"], declared["reduced"]
        if default is not None:
            reduced_note = f"; {reduced} if reduced" if reduced != default else ""
            shown += f" [default: {default}{reduced_note}]"
        assert join_words(shown) in text
    assert "--tls-cert is PODGATE_TLS_CERT" in text
    assert name_variable("drain_seconds") == "PODGATE_DRAIN"


def test_serve_reports_all_mistakes_and_exits_2() -> None:
    done = run_installed("serve", "--listen", "x", "--drain", "x")
    lines = done.err.splitlines()
    assert (done.code, done.out, lines[0]) == (2, "", "error: settings:")
    assert [line.split(":")[0].strip() for line in lines[1:]] == [
        "--policy", "--tls-cert", "--tls-key", "--client-ca", "--identities", "--listen", "--drain", "--jwks",
    ]  # fmt: skip


def test_shutdown_periods_may_be_zero(flags: dict[str, str | None]) -> None:
    parsed = parse({**flags, "drain_seconds": "0s", "grace_seconds": "0"}, {})
    assert (parsed.drain_seconds, parsed.grace_seconds) == (0, 0)


def test_policy_of_the_cluster_is_the_default_in_a_pod(
    flags: dict[str, str | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags["policy"] = None
    (token := tmp_path / "token").write_text("one")
    monkeypatch.setattr("webhook.settings.parsing._SERVICE_ACCOUNT_TOKEN", token)
    in_cluster = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert parse(flags, in_cluster).policy is None
    assert parse({**flags, "kubeconfig": str(token)}, {}).kubeconfig == Kubeconfig((token,))
    [outside_error] = list_mistakes(flags)
    token.unlink()
    [without_token_error] = list_mistakes(flags, in_cluster)
    assert outside_error == without_token_error
    assert outside_error.startswith(
        "--policy: missing, and this is no Pod with a service account's token: give --policy"
    )


def test_keys_come_from_file_url_cluster_or_all(flags: dict[str, str | None], tmp_path: Path) -> None:
    kubeconfig, url = str(tmp_path / "tls_cert"), "https://issuer.example:8443/keys?set=1"
    assert parse({**flags, "jwks": None, "jwks_url": url}, {}).jwks_url == url
    only_cluster = parse({**flags, "jwks": None, "cluster_keys": "true", "kubeconfig": kubeconfig}, {})
    assert (only_cluster.jwks, only_cluster.jwks_url, only_cluster.cluster_keys) == (None, None, True)
    every = parse(
        {**flags, "jwks_url": url, "cluster_keys": "true", "kubeconfig": kubeconfig, "jwks_ca": kubeconfig}, {}
    )
    assert (every.jwks, every.jwks_url, every.cluster_keys) == (tmp_path / "jwks", url, True)
    assert (every.jwks_max_stale_seconds, every.token_binding, every.denied_tokens) == (3600, "if-present", None)


def test_inconsistent_key_settings_are_mistakes(flags: dict[str, str | None]) -> None:
    assert list_mistakes({**flags, "jwks": None}) == [NO_KEYS]
    assert list_mistakes({**flags, "jwks_ca": flags["tls_cert"]}) == [
        "--jwks-ca: belongs to --jwks-url: give that too, or leave this out"
    ]
    assert list_mistakes(flags, {"PODGATE_CLUSTER_KEYS": "true"}) == [
        "PODGATE_CLUSTER_KEYS: 'true': there is no cluster to ask: give a --kubeconfig, or leave this out"
    ]


def test_own_certificates_need_a_cluster_and_consistent_lifetimes(flags: dict[str, str | None], tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").touch()
    flags |= {"certificates": "own"}
    [line] = list_mistakes(flags)
    assert line == "--certificates: 'own': there is no cluster to keep them in: give a --kubeconfig"
    flags |= {"kubeconfig": str(tmp_path / "kubeconfig")}
    assert parse(flags, {}).certificates == "own"
    [line] = list_mistakes({**flags, "store": "redis://127.0.0.1:6379/0"})
    assert line.startswith("--certificates: 'own': a server does this only with --store memory: give it to")
    [line] = list_mistakes({**flags, "certificates": "certmanager"})
    assert line == "--certificates: 'certmanager': write off, own, cert-manager"
    [line] = list_mistakes({**flags, "serving_ca_lifetime_seconds": "5m", "serving_lifetime_seconds": "4m"})
    assert line == (
        "--serving-ca-lifetime: too short to sign certificates that live 240s: write at least twice --serving-lifetime"
    )


def test_settings_for_caller_credentials_name_what_they_require(flags: dict[str, str | None], tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").touch()
    flags |= {"kubeconfig": str(tmp_path / "kubeconfig")}
    with_ports = {**flags, "certificates": "own", "caller_ports": "443,444", "token_issuer": "podgate"}
    shortest = 2 * RENEWAL_LIFETIME_SECONDS_MIN
    assert parse({**with_ports, "client_lifetime_seconds": f"{shortest}s"}, {}).caller_ports == (443, 444)
    [line] = list_mistakes({**with_ports, "client_lifetime_seconds": f"{shortest - 1}s"})
    assert line == (
        "--client-lifetime: 899s, too short for --caller-ports: kube-apiserver has a new certificate in both places "
        "only after minutes: write 15m or more, or leave --caller-ports out"
    )
    for mode in (None, "off", "cert-manager"):
        [line] = list_mistakes({**flags, "certificates": mode}, {"PODGATE_CALLER_PORTS": "443,444"})
        assert line == (
            "PODGATE_CALLER_PORTS: '443,444': belongs to --certificates own, and this is "
            f"{mode or 'off'}: leave it out, or write --certificates own"
        )
    assert parse({**flags, "token_issuer": "podgate"}, {}).token_issuer == "podgate"
    [line] = list_mistakes({**flags, "certificates": "cert-manager", "token_issuer": "podgate"})
    assert line == (
        "--token-issuer: 'podgate': its token goes into the Secret that cert-manager writes: leave it out, and take "
        "the cluster's own tokens (--cluster-keys true, podgate apiserver-files --token cluster)"
    )


def test_issued_token_lifetime_has_a_minimum_and_a_maximum(flags: dict[str, str | None], tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").touch()
    flags |= {"kubeconfig": str(tmp_path / "kubeconfig"), "token_issuer": "podgate"}
    for text, seconds in (("2m", 120), ("24h", 86400)):
        assert parse({**flags, "token_lifetime_seconds": text}, {}).token_lifetime_seconds == seconds
    [line] = list_mistakes(flags, {"PODGATE_TOKEN_LIFETIME": "119s"})
    assert line == (
        "PODGATE_TOKEN_LIFETIME: 119s, too short for --token-issuer: kube-apiserver has the next one only after a "
        "minute and a half: write 2m or more"
    )
    [line] = list_mistakes({**flags, "token_lifetime_seconds": "48h"})
    assert line == (
        "--token-lifetime: 172800s, more than --max-token-lifetime (86400s): it would be refused here: "
        "write at most that, or raise --max-token-lifetime"
    )
    [line] = list_mistakes({**flags, "max_token_lifetime_seconds": "59m"})
    assert line.startswith("--token-lifetime: 3600s, more than --max-token-lifetime (3540s)"), (
        "its default is too long, too"
    )
    controller_flags = {"kubeconfig": flags["kubeconfig"], "token_issuer": "podgate", "token_lifetime_seconds": "48h"}
    assert parse_as(ControllerSettings, controller_flags, {}).token_lifetime_seconds == 172800, (
        "servers elsewhere may accept it"
    )
    assert parse({**flags, "token_issuer": None, "token_lifetime_seconds": "30s"}, {}), "no token is issued"


def test_a_file_without_good_policy_keys_is_a_mistake(flags: dict[str, str | None], tmp_path: Path) -> None:
    (tmp_path / "keys.pem").write_text("no key")
    (mistake,) = list_mistakes({**flags, "policy_keys": str(tmp_path / "keys.pem")})
    assert mistake.startswith("--policy-keys: '")
    assert ": its content: no key in it: write a PEM block BEGIN PUBLIC KEY" in mistake
