"""Errors about files and URLs never show their content or password."""

from dataclasses import fields
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.harness.identity import IDENTITIES, Pki, jwks, signer
from tests.secrets import PASSWORD, SECRET_FILES, SecretFile
from webhook.cli import root
from webhook.errors import UserError
from webhook.settings import Settings, name_variable, parse, readers

POLICY = """apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: a
  match: {namespaces: [a]}
"""
POD = """apiVersion: v1
kind: Pod
metadata: {name: p, namespace: a}
spec: {containers: [{name: c, image: i}]}
"""
IDENTITY_FLAGS = "--issuer i --audience a --subject s"
SERVE = "serve --policy POLICY"
GOOD = "serve --identities IDS --jwks JWKS --tls-cert CRT --tls-key KEY --client-ca CA"
COMMANDS = (
    "policy lint FILE",
    "policy lint FILE -o json",
    "policy render --policy FILE",
    "policy webhooks --policy FILE --without-ca",
    "policy webhooks --policy POLICY --ca FILE",
    "policy webhooks --policy POLICY --without-ca --path-file FILE",
    "review --policy FILE POD",
    "review --policy POLICY FILE",
    "review --policy POLICY --namespaces FILE POD",
    "replay --policy FILE EVENTS",
    "replay --policy POLICY FILE",
    "override a --quota-factor 2 --for 1m --overrides FILE --policy POLICY",
    "override --list --overrides FILE",
    "override a --quota-factor 2 --for 1m --overrides FREE --policy FILE",
    "override --list --kubeconfig FILE",
    "quota grant a --window 1m --hard pods=1 --for 1m --overrides FILE --policy POLICY",
    "breaker reset a --overrides FILE --policy POLICY",
    "breaker reset a --kubeconfig FILE",
    "token inspect FILE",
    "token inspect FILE -o json",
    "token inspect TOKEN --jwks FILE",
    "token jwks FILE",
    f"token issue --key FILE {IDENTITY_FLAGS}",
    f"token issue --key KEY {IDENTITY_FLAGS} --bind-to FILE",
    f"token rotate --out FOLDER {IDENTITY_FLAGS}",
    "certs inspect FILE",
    "certs inspect CA --ca FILE",
    "certs issue --out FREE --ca-cert FILE --ca-key KEY --client a",
    "certs issue --out FREE --ca-cert CA --ca-key FILE --client a",
    "certs rotate --out FOLDER",
    "certs bootstrap --kubeconfig FILE",
    "apiserver-files --out FREE --once --kubeconfig FILE",
    "apiserver-files --out FOLDER --check",
    f"{SERVE} --identities FILE --jwks JWKS --tls-cert CRT --tls-key KEY --client-ca CA",
    f"{SERVE} --identities IDS --jwks FILE --tls-cert CRT --tls-key KEY --client-ca CA",
    f"{SERVE} --identities IDS --jwks JWKS --tls-cert FILE --tls-key KEY --client-ca CA",
    f"{SERVE} --identities IDS --jwks JWKS --tls-cert CRT --tls-key FILE --client-ca CA",
    f"{SERVE} --identities IDS --jwks JWKS --tls-cert CRT --tls-key KEY --client-ca FILE",
    f"{GOOD} --policy POLICY --serving-ca FILE",
    f"{GOOD} --policy POLICY --denied-tokens FILE",
    f"{GOOD} --policy POLICY --jwks-url https://127.0.0.1:1/ --jwks-ca FILE",
    f"{GOOD} --policy POLICY --client-identity forwarded --forwarded-ca FILE",
    f"{GOOD} --kubeconfig FILE",
    f"{SERVE} --client-identity reduced --reduced-path-file FILE --tls-cert CRT --tls-key KEY",
)


class CommandFiles:
    """Valid files of every kind, and a folder whose files all have the given content."""

    def __init__(self, folder: Path, text: str) -> None:
        pki, issuer = Pki.create(folder / "pki"), signer()
        self._files = {
            "FILE": folder / "given",
            "FREE": folder / "free",
            "FOLDER": folder / "folder",
            "POLICY": folder / "policy.yaml",
            "POD": folder / "pod.yaml",
            "EVENTS": folder / "events.jsonl",
            "TOKEN": folder / "token",
            "IDS": folder / "identities.yaml",
            "JWKS": folder / "jwks.json",
            "CRT": pki.paths.certificate,
            "KEY": pki.paths.key,
            "CA": folder / "pki" / "ca.crt",
        }
        contents = {"FILE": text, "POLICY": POLICY, "POD": POD, "EVENTS": "", "TOKEN": issuer.token()}
        for name, content in {**contents, "IDS": IDENTITIES, "JWKS": jwks(issuer)}.items():
            self._files[name].write_text(content)
        self._files["FOLDER"].mkdir()
        for name in ("ca.crt", "ca.key", "rotation.json", "keys.json", "token", "kubeconfig", "jwks.json"):
            (self._files["FOLDER"] / name).write_text(text)

    def words(self, command: str) -> list[str]:
        return [str(self._files.get(word, word)) for word in command.split()]


def run_command(words: list[str]) -> str:
    """Run a command; return its visible output, which must have no stack trace."""
    done = CliRunner().invoke(root, words)
    error = done.exception
    if isinstance(error, UserError):
        return f"{done.output}{error}: {error.remedy}"
    if isinstance(error, click.ClickException):
        return f"{done.output}{error.format_message()}"
    assert error is None or isinstance(error, SystemExit | RecursionError), (words, error)
    return done.output


@pytest.mark.parametrize("kind", SECRET_FILES)
@pytest.mark.parametrize("command", COMMANDS)
def test_wrong_file_error_shows_no_secret_of_it(tmp_path: Path, command: str, kind: str) -> None:
    secret_file = SECRET_FILES[kind]
    output = run_command(CommandFiles(tmp_path, secret_file.text).words(command))
    assert secret_file.find_shown(output) == set(), output


URLS = (
    f"https://user:{PASSWORD}@issuer.example/jwks.json",
    f"https://user:{PASSWORD}@[issuer/jwks.json",
    f"https://user:{PASSWORD}",
    f"https://user:{PASSWORD}/@issuer.example:443",
    f"ftp://user:{PASSWORD}@issuer.example/",
    f"rediss://user:x://{PASSWORD}@redis/0/1",
    f"https://issuer.example/#{PASSWORD}",
    f"https://issuer.example:port/?key={PASSWORD}",
    f"https://user:{PASSWORD}\u2100@issuer.example/",
)
TAKING_URLS = (
    "serve --policy POLICY --jwks-url URL",
    "serve --policy POLICY --store URL",
    "controller --policy POLICY --store URL",
    "serve --policy POLICY --otlp-endpoint URL",
    "replay --policy POLICY --store URL EVENTS",
    "policy webhooks --policy POLICY --without-ca --url URL",
    "status --server URL",
    "breaker list --server URL",
    "apiserver-files --out FREE --webhook URL",
    "demo --once --redis URL",
)


@pytest.mark.parametrize("command", TAKING_URLS)
@pytest.mark.parametrize("url", URLS)
def test_refused_url_is_shown_without_its_password(tmp_path: Path, command: str, url: str) -> None:
    words = [url if word == "URL" else word for word in CommandFiles(tmp_path, "").words(command)]
    output = run_command(words)
    assert output
    assert SecretFile("", (PASSWORD,)).find_shown(output) == set(), output


FILE_SETTINGS = [item.name for item in fields(Settings) if item.metadata["read"] in {readers.file, readers.path}]
OTHERS = [item.name for item in fields(Settings) if item.name not in FILE_SETTINGS]


@pytest.mark.parametrize("name", [*FILE_SETTINGS, *OTHERS])
@pytest.mark.parametrize("kind", ["a private key", "a kubeconfig", "a JWT", "a .env file"])
def test_secret_as_a_setting_is_not_shown(name: str, kind: str) -> None:
    secret_file = SECRET_FILES[kind]
    with pytest.raises(UserError) as refused:
        parse({}, {name_variable(name): secret_file.text.strip()})
    assert secret_file.find_shown(f"{refused.value}") == set()


@pytest.mark.parametrize("name", FILE_SETTINGS)
def test_password_as_a_file_setting_is_not_shown(name: str) -> None:
    with pytest.raises(UserError) as refused:
        parse({}, {name_variable(name): PASSWORD})
    assert PASSWORD not in str(refused.value)
