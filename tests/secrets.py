"""Secret files that a user may give by mistake, and a search for their secrets in output."""

import base64
from dataclasses import dataclass

_RUN_LENGTH = 8
"""Length of the parts of a secret that are searched for: shorter parts occur by chance."""
_KEY = base64.b64encode(bytes((index * 73 + 41) % 256 for index in range(120))).decode()
_JWT = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJhIiwic3ViIjoiYiIsImV4cCI6MX0.c2lnbmF0dXJlLW9mLWEtdG9rZW4tdGhhdC1pcy1zZWNyZXQ"


@dataclass(frozen=True)
class SecretFile:
    """The text of a file, and the secrets in it."""

    text: str
    secrets: tuple[str, ...]

    def find_shown(self, output: str) -> set[str]:
        """Return the parts of secrets that the output contains."""
        runs = (
            secret[start : start + _RUN_LENGTH]
            for secret in self.secrets
            for start in range(len(secret) - _RUN_LENGTH + 1)
        )
        return {run for run in runs if run in output}


def _private_key() -> SecretFile:
    lines = [_KEY[start : start + 64] for start in range(0, len(_KEY), 64)]
    text = "\n".join(("-----BEGIN PRIVATE KEY-----", *lines, "-----END PRIVATE KEY-----", ""))
    return SecretFile(text, tuple(lines))


def _kubeconfig(end: str = "") -> SecretFile:
    token, key = "tok-Zq83mVxw71LkPd0f", _KEY[:44]
    text = f"""apiVersion: v1
kind: Config
clusters:
- name: prod
  cluster: {{server: "https://10.0.0.1:6443"}}
users:
- name: admin
  user:
    token: {token}
    client-key-data: {key}
{end}"""
    return SecretFile(text, (token, key))


PASSWORD = "correct-horse-battery-staple-42"
SECRET_FILES: dict[str, SecretFile] = {
    "a private key": _private_key(),
    "a password": SecretFile(f"{PASSWORD}\n", (PASSWORD,)),
    "a password as YAML": SecretFile(f"password: {PASSWORD}\n", (PASSWORD,)),
    "a password in a list": SecretFile(f"- {PASSWORD}\n- [{PASSWORD}]\n", (PASSWORD,)),
    "a password under a service": SecretFile(f"services:\n  db:\n    password: {PASSWORD}\n", (PASSWORD,)),
    "a key that is a password": SecretFile(f"{PASSWORD}: x\n", (PASSWORD,)),
    "a kubeconfig": _kubeconfig(),
    "a broken kubeconfig": _kubeconfig("  password: 'Qp-unclosed-83hd62h\n"),
    "a JWT": SecretFile(f"{_JWT}\n", tuple(_JWT.split("."))),
    "a .env file": SecretFile(f"# secrets\nDB_PASSWORD={PASSWORD}\nAPI_KEY={_KEY[:40]}\n", (PASSWORD, _KEY[:40])),
    "a Secret": SecretFile(
        f"apiVersion: v1\nkind: Secret\nmetadata: {{name: db}}\nstringData:\n  password: {PASSWORD}\n", (PASSWORD,)
    ),
    "JSON": SecretFile(f'{{"password": "{PASSWORD}", "keys": ["{PASSWORD}"], "n": {PASSWORD}}}', (PASSWORD,)),
    "an alias": SecretFile(
        f"a: *{PASSWORD.replace('-', '')}\nb: !{PASSWORD} x\n", (PASSWORD, PASSWORD.replace("-", ""))
    ),
}
