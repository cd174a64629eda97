import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from certs.authority import Authority
from certs.files import write_key_pair
from webhook.cli import root
from webhook.commands.pages.yaml_text import format_yaml_stream
from webhook.core.document import Purpose, load
from webhook.core.webhook_configurations import ClientConfig, ServiceReference, render_configurations
from webhook.errors import UserError

PAGE = Path(__file__).parents[3] / "docs" / "policy.md"
HEAD = "apiVersion: podgate.io/v1alpha1\nkind: Policy\n"
POLICY = f"""{HEAD}exemptions: {{namespaces: ["ops-*", infra], usernames: [zoe, "o'neil"]}}
services:
- {{name: a, failureMode: Closed, match: {{namespaces: [payments, "pay-*", shop]}}}}
- {{name: b, match: {{namespaceSelector: {{matchLabels: {{tier: prod, team: x}}}}}}}}
- {{name: c, match: {{namespaceSelector: {{matchExpressions: [{{key: tier, operator: Exists}}]}}, namespaces: ["s*"]}}}}
"""


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    """Return a CA file that also contains the key, as is common."""
    certificate, key = tmp_path / "ca.crt", tmp_path / "ca.key"
    write_key_pair(Authority.create().key_pair, certificate, key)
    both = tmp_path / "both.pem"
    both.write_bytes(key.read_bytes() + b"words between\n" + certificate.read_bytes())
    return both


def run(ca: Path, *arguments: str, policy: str = POLICY) -> Result:
    command = ["policy", "webhooks", "--policy", "-", "--ca", str(ca), *arguments]
    return CliRunner().invoke(root, command, input=policy)


def build_expected(ca: Path, target: ServiceReference | str) -> tuple[object, ...]:
    bundle = (ca.parent / "ca.crt").read_bytes()
    loaded = load(POLICY.encode(), Purpose.SERVE).policy
    return render_configurations(loaded.policy, ClientConfig(target, bundle), loaded.hash)


def test_output_has_the_three_objects_with_the_certificate_and_no_key(ca: Path) -> None:
    result = run(ca)
    assert result.exit_code == 0, result.output
    assert tuple(yaml.safe_load_all(result.stdout)) == build_expected(ca, ServiceReference())


@pytest.mark.parametrize(
    ("arguments", "target"),
    [
        (("--service", "ns/name:8443"), ServiceReference("ns", "name", 8443)),
        (("--service", "ns/name"), ServiceReference("ns", "name")),
        (("--url", "https://10.0.0.1:8443"), "https://10.0.0.1:8443"),
        (("--url", "https://[::1]:8443"), "https://[::1]:8443"),
    ],
)
def test_json_output_is_a_list_with_the_given_service_or_url(
    ca: Path, arguments: tuple[str, ...], target: ServiceReference | str
) -> None:
    found = json.loads(run(ca, "-o", "json", *arguments).stdout)
    assert (found["apiVersion"], found["kind"]) == ("v1", "List")
    assert tuple(found["items"]) == build_expected(ca, target)


@pytest.mark.parametrize(
    ("arguments", "service"),
    [
        ((), {"namespace": "podgate-system", "name": "podgate"}),
        (("--service", "ns/name"), {"namespace": "ns", "name": "name"}),
        (("--service", "ns/name:8443"), {"namespace": "ns", "name": "name", "port": 8443}),
    ],
)
def test_without_ca_the_port_is_written_only_if_given(arguments: tuple[str, ...], service: dict[str, object]) -> None:
    command = ["policy", "webhooks", "--policy", "-", "--without-ca", "-o", "json", *arguments]
    items = json.loads(CliRunner().invoke(root, command, input=POLICY).stdout)["items"]
    clients = [entry["clientConfig"] for item in items for entry in item["webhooks"]]
    assert len(clients) >= 3
    for client in clients:
        assert client["service"].pop("path").startswith("/")
        assert client == {"service": service}


def test_output_does_not_depend_on_the_hash_seed(ca: Path) -> None:
    """The hash seed orders sets: no set may be written unsorted."""
    command = [sys.executable, "-m", "webhook", "policy", "webhooks", "--policy", "-", "--ca", str(ca)]
    printed = {
        subprocess.run(
            command,
            input=POLICY,
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(printed) == 1


def explain_policy(*arguments: str, policy: str = POLICY) -> str:
    result = CliRunner().invoke(root, ["policy", "webhooks", "--policy", "-", "--explain", *arguments], input=policy)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_explanation_is_a_table_of_each_webhook_the_last_as_documented() -> None:
    documented = re.search(
        r"\$ podgate policy webhooks --policy (\S+) --explain\n\.\.\.\n(.*?)```", PAGE.read_text(), re.DOTALL
    )
    assert documented is not None
    _, validating = explain_policy(policy=(PAGE.parents[1] / documented[1]).read_text()).split("\n\n")[1:]
    assert validating == documented[2]


def test_explanation_in_json_and_yaml_has_the_same_content() -> None:
    found = json.loads(explain_policy("-o", "json"))
    assert found == yaml.safe_load(explain_policy("-o", "yaml"))
    assert found["policyHash"] == load(POLICY.encode(), Purpose.SERVE).policy.hash
    assert found["webhooks"][0]["namespaces"] == {
        "names": ["pay-*", "payments", "shop"],
        "except": ["infra", "kube-node-lease", "kube-system", "podgate-system"],
        "labels": [],
    }
    assert {pod["call"] for webhook in found["webhooks"] for pod in webhook["newPods"]} == {"Made", "LeftOut"}


def test_with_all_calls_no_call_is_left_out(ca: Path) -> None:
    found = json.loads(explain_policy("-o", "json", "--all-calls"))
    assert {pod["call"] for webhook in found["webhooks"] for pod in webhook["newPods"]} == {"Made"}
    loaded = load(POLICY.encode(), Purpose.SERVE).policy
    bundle = (ca.parent / "ca.crt").read_bytes()
    every_call = render_configurations(loaded.policy, ClientConfig(ServiceReference(), bundle), all_calls=True)
    assert tuple(yaml.safe_load_all(run(ca, "--all-calls").stdout)) == every_call


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (("--service", "podgate:443"), "podgate:443"),
        (("--service", "ns/Name:443"), "ns/Name:443"),
        (("--service", "ns/name:65536"), "ns/name:65536"),
        (("--service", "ns/name:0"), "ns/name:0"),
        (("--url", "http://10.0.0.1"), "http://10.0.0.1"),
        (("--url", "https://"), "https://"),
        (("--url", "https://a:port"), "https://a:***"),
        (("--url", "https://user@a"), "https://***@a"),
        (("--url", "https://a?b"), "https://a?***"),
        (("--url", "https://a", "--service", "ns/name:1"), "--service and --url"),
    ],
)
def test_invalid_target_is_a_user_error(ca: Path, arguments: tuple[str, ...], value: str) -> None:
    error = run(ca, *arguments).exception
    assert isinstance(error, UserError)
    assert value in str(error)
    assert error.remedy


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_ca_file_without_a_certificate_is_a_user_error(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "other.crt"
    if content is not None:
        path.write_bytes(content)
    error = run(path).exception
    assert isinstance(error, UserError)
    assert "other.crt" in str(error)


def test_invalid_policy_is_reported_and_prints_no_output(ca: Path) -> None:
    result = run(ca, policy=f"{HEAD}services:\n- {{name: a, match: {{namespaces: [Payments]}}}}\n")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: -:4:34: services[0].match.namespaces[0]: Payments: ")


def test_policy_that_serve_rejects_is_not_rendered(ca: Path) -> None:
    quota = "quota: {windows: [{window: 1m, hard: {pods: 1}}], whenExceeded: Queue}"  # without `queue`
    result = run(ca, policy=f"{HEAD}services: [{{name: a, match: {{namespaces: [a]}}, {quota}}}]\n")
    assert result.exit_code == 1
    assert "there is no queue stanza" in result.stderr


def test_too_many_overlapping_selectors_are_a_user_error(ca: Path) -> None:
    services = "".join(
        f"- {{name: s{n}, match: {{namespaceSelector: {{matchLabels: {{a{n}: x, b{n}: x}}}}}}}}\n" for n in range(20)
    )
    error = run(ca, policy=f"{HEAD}services:\n{services}").exception
    assert isinstance(error, UserError)
    assert str(error).startswith("-: services[].match.namespaceSelector: ")
    assert error.remedy


def test_long_and_quoted_expressions_survive_yaml() -> None:
    document = {"a": "x == 'y' ||\n  b", "b": "!(c)", "c": "None", "d": "x" * 1000 + " y" * 1000}
    assert list(yaml.safe_load_all(format_yaml_stream((document, document)))) == [document, document]
