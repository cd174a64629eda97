"""Folder with kube-apiserver's credentials, kubeconfig and configuration for Podgate, replaced file by file."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from certs import lock_folder, write
from webhook.errors import UserError
from webhook.support.input_files import read_bounded
from webhook.support.redaction import mask

CONFIGURATION, KUBECONFIG, TOKEN = "admission-configuration.yaml", "kubeconfig.yaml", "token"
IDENTITIES = IDENTITY, SECOND = "kube-apiserver.pem", "kube-apiserver-2.pem"
FILES = (CONFIGURATION, KUBECONFIG, *IDENTITIES, TOKEN)
DEFAULT = Path("/etc/kubernetes/podgate")
_LEDGER = ".podgate.json"
_PRIVATE = 0o700
_DRAFT = re.compile(rf"\.({'|'.join(map(re.escape, (*FILES, _LEDGER)))})\.[0-9a-f]{{8}}")

_CONFIGURATION = """\
# kube-apiserver --admission-control-config-file={folder}/{configuration}
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: MutatingAdmissionWebhook
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: {folder}/{kubeconfig}
- name: ValidatingAdmissionWebhook
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: {folder}/{kubeconfig}
"""
# Certificate and key are one file, so that one rename replaces both: kube-apiserver never reads a pair that differs.
_KUBECONFIG = """\
# kube-apiserver's credentials for Podgate. A user's name is the webhook's host: they are not sent to other webhooks.
# A certificate and its key, in one file, are read again with each new connection and every five minutes, the token
# every minute. When a certificate has changed, kube-apiserver closes all connections that it made with it: so there are
# two users, for two ports of one Service, and the certificate of the port that is not in use changes first.
apiVersion: v1
kind: Config
users:
"""
_USER = """\
- name: "{name}"
  user:
    client-certificate: {folder}/{identity}
    client-key: {folder}/{identity}
    tokenFile: {folder}/{token}
"""


def render_static_files(folder: Path, users: Mapping[str, str]) -> dict[str, str]:
    """Return the two static files: the admission configuration and the kubeconfig.

    `users` has the file of each user's certificate, by the user's name.
    """
    names = {"folder": folder, "configuration": CONFIGURATION, "kubeconfig": KUBECONFIG}
    rows = [_USER.format(name=name, folder=folder, identity=identity, token=TOKEN) for name, identity in users.items()]
    return {CONFIGURATION: _CONFIGURATION.format(**names), KUBECONFIG: _KUBECONFIG + "".join(rows)}


class CredentialFolder:
    """Writer that replaces only its own files, whose digests are recorded in a file beside them.

    A file is replaced by one rename. The last two digests of each are recorded, the new one before it is written: so a
    process that was killed in between recognizes both. Writers exclude each other by a lock.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: str) -> bytes | None:
        try:
            with (self.path / name).open("rb") as stream:
                return read_bounded(stream, self.path / name)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UserError(f"{self.path / name}: cannot be read: {error.strerror}", "run this as root") from None

    def put(self, name: str, content: bytes) -> bool:
        """Write `content`, readable by its owner only; return whether it changed. UserError: others changed it."""
        if self.read(name) == content:
            return False
        with self._lock():
            return self._replace(name, content)

    def _replace(self, name: str, content: bytes) -> bool:
        before = self.read(name)
        if before == content:
            return False
        ledger = self._read_ledger()
        if before is not None and _compute_digest(before) not in ledger.get(name, ()):
            raise UserError(
                f"{self.path / name}: changed since it was written: left alone",
                "move it away, and the next run writes it again",
            )
        self._claim()
        ledger[name] = [_compute_digest(text) for text in (content, before) if text is not None]
        write(self.path / _LEDGER, json.dumps(ledger, indent=2).encode() + b"\n", secret=True, replace=True)
        write(self.path / name, content, secret=True, replace=True)
        return True

    @contextmanager
    def _lock(self) -> Iterator[None]:
        try:
            self.path.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        except OSError as error:
            raise self._describe_refusal(error) from None
        with lock_folder(self.path):
            yield

    def _read_ledger(self) -> dict[str, list[str]]:
        try:
            found = json.loads(self.read(_LEDGER) or b"{}")
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise UserError(f"{self.path / _LEDGER}: cannot be parsed", "move it away, and what is listed in it")
        return found

    def _claim(self) -> None:
        """Set the folder's mode at first use, and remove temporary files of an earlier process that was killed."""
        try:
            if self.read(_LEDGER) is None:
                self.path.chmod(_PRIVATE)
            for path in self.path.iterdir():
                if _DRAFT.fullmatch(path.name):
                    path.unlink(missing_ok=True)
        except OSError as error:
            raise self._describe_refusal(error) from None

    def _describe_refusal(self, error: OSError) -> UserError:
        return UserError(f"{self.path}: {error.strerror}", "run this as root, or name another --out")


def _compute_digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


_LABEL = "[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?"
# An IPv6 address needs its port: kube-apiserver never looks up one without.
_HOST = re.compile(rf"(?P<name>{_LABEL}(\.{_LABEL})*(?=:|$)|\[[0-9A-Fa-f:.]+\](?=:))(:(?P<port>[1-9][0-9]{{0,4}}))?")
_PORT_DEFAULT, _PORT_MAX = 443, 65535


def find_users(hosts: Sequence[str], second_port: int | None) -> Mapping[str, str]:
    """Return the certificate file of each user, by user name; UserError names an invalid --webhook.

    `hosts` are HOST or HOST:PORT, as a webhook's Service or URL has them; None: that Service has one port.
    """
    targets = [_parse_target(host) for host in hosts]
    users = [(host, target, IDENTITY) for host, target in zip(hosts, targets, strict=True)]
    if second_port is not None:
        users += [(f"{name}:{second_port}", (name, second_port), SECOND) for name, _ in targets]
    called = [target for _, target, _ in users]
    if again := [f"{name}:{port}" for name, port in called if called.count((name, port)) > 1]:
        raise UserError(
            f"--webhook, --second-port {second_port or 0}: two users for {again[0]}: kube-apiserver takes one",
            "name each host once; where webhooks call a URL, write HOST:PORT and --second-port 0",
        )
    return {user: identity for user, _, identity in users}


def _parse_target(host: str) -> tuple[str, int]:
    found = _HOST.fullmatch(host)
    port = int(found["port"] or _PORT_DEFAULT) if found else 0
    if found is None or port > _PORT_MAX:
        raise UserError(
            f"--webhook {mask(host)!r}: not a host and port of a webhook",
            "write HOST or HOST:PORT, such as podgate.podgate-system.svc, without https:// and path",
        )
    return found["name"], port
