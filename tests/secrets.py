"""Secrets that a user may give by mistake, and whether any part of one of them is shown."""

import base64
from dataclasses import dataclass

_RUN = 8
"""So many characters in a row are a part of a secret: shorter ones come about by chance."""
_KEY = base64.b64encode(bytes((index * 73 + 41) % 256 for index in range(120))).decode()
_JWT = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJhIiwic3ViIjoiYiIsImV4cCI6MX0.c2lnbmF0dXJlLW9mLWEtdG9rZW4tdGhhdC1pcy1zZWNyZXQ"


@dataclass(frozen=True)
class Planted:
    """A file as it lies about, and what of it nobody may see."""

    text: str
    hidden: tuple[str, ...]

    def shown_in(self, output: str) -> set[str]:
        """Return the parts that are shown."""
        runs = (one[at : at + _RUN] for one in self.hidden for at in range(len(one) - _RUN + 1))
        return {run for run in runs if run in output}


def _private_key() -> Planted:
    lines = [_KEY[at : at + 64] for at in range(0, len(_KEY), 64)]
    text = "\n".join(("-----BEGIN PRIVATE KEY-----", *lines, "-----END PRIVATE KEY-----", ""))
    return Planted(text, tuple(lines))


def _kubeconfig(end: str = "") -> Planted:
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
    return Planted(text, (token, key))


PASSWORD = "correct-horse-battery-staple-42"
PLANTED: dict[str, Planted] = {
    "a private key": _private_key(),
    "a password": Planted(f"{PASSWORD}\n", (PASSWORD,)),
    "a password as YAML": Planted(f"password: {PASSWORD}\n", (PASSWORD,)),
    "a password in a list": Planted(f"- {PASSWORD}\n- [{PASSWORD}]\n", (PASSWORD,)),
    "a password under a service": Planted(f"services:\n  db:\n    password: {PASSWORD}\n", (PASSWORD,)),
    "a key that is a password": Planted(f"{PASSWORD}: x\n", (PASSWORD,)),
    "a kubeconfig": _kubeconfig(),
    "a broken kubeconfig": _kubeconfig("  password: 'Qp-unclosed-83hd62h\n"),
    "a JWT": Planted(f"{_JWT}\n", tuple(_JWT.split("."))),
    "a .env file": Planted(f"# secrets\nDB_PASSWORD={PASSWORD}\nAPI_KEY={_KEY[:40]}\n", (PASSWORD, _KEY[:40])),
    "a Secret": Planted(
        f"apiVersion: v1\nkind: Secret\nmetadata: {{name: db}}\nstringData:\n  password: {PASSWORD}\n", (PASSWORD,)
    ),
    "JSON": Planted(f'{{"password": "{PASSWORD}", "keys": ["{PASSWORD}"], "n": {PASSWORD}}}', (PASSWORD,)),
    "an alias": Planted(f"a: *{PASSWORD.replace('-', '')}\nb: !{PASSWORD} x\n", (PASSWORD, PASSWORD.replace("-", ""))),
}
