"""The folder by which kube-apiserver calls Podgate: what stands in it, swapped file by file, and only what is ours."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from certs import folder_lock, write
from webhook.errors import UserError
from webhook.support.input_files import bounded

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
# Certificate and key are one file, so that one rename changes both: kube-apiserver shakes no hands while they differ.
_KUBECONFIG = """\
# Whom kube-apiserver calls Podgate as. A user's name is the webhook's host: other webhooks get no credentials here.
# A certificate and its key, in one file, are read again with each new connection and every five minutes, the token
# every minute. When a certificate has changed, kube-apiserver closes all connections that it made with it: so there are
# two users, for two ports of one Service, and the certificate of the one that is not called changes first.
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


def texts(folder: Path, users: Mapping[str, str]) -> dict[str, str]:
    """Return the two files that stay as they are: what the API server is started with, and whom it calls as.

    `users` has the file of each user's certificate, by the user's name.
    """
    names = {"folder": folder, "configuration": CONFIGURATION, "kubeconfig": KUBECONFIG}
    rows = [_USER.format(name=name, folder=folder, identity=identity, token=TOKEN) for name, identity in users.items()]
    return {CONFIGURATION: _CONFIGURATION.format(**names), KUBECONFIG: _KUBECONFIG + "".join(rows)}


class CredentialFolder:
    """Remembers, in a file of its own, what it has written: what differs from that is somebody else's, and stays.

    A file is replaced by one rename. Of each the last two are remembered, and the new one before it is written: whoever
    is killed in between knows its own again. Two writers take turns.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: str) -> bytes | None:
        try:
            with (self.path / name).open("rb") as stream:
                return bounded(stream, self.path / name)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UserError(f"{self.path / name}: cannot be read: {error.strerror}", "run this as root") from None

    def put(self, name: str, content: bytes) -> bool:
        """Have `content` there, for its owner alone; say whether it was not. UserError where another's file is."""
        if self.read(name) == content:
            return False
        with self._alone():
            return self._replace(name, content)

    def _replace(self, name: str, content: bytes) -> bool:
        before = self.read(name)
        if before == content:
            return False
        ledger = self._ledger()
        if before is not None and _digest(before) not in ledger.get(name, ()):
            raise UserError(
                f"{self.path / name}: not as it was written here: left alone",
                "move it away, and it is written anew",
            )
        self._claim()
        ledger[name] = [_digest(one) for one in (content, before) if one is not None]
        write(self.path / _LEDGER, json.dumps(ledger, indent=2).encode() + b"\n", secret=True, replace=True)
        write(self.path / name, content, secret=True, replace=True)
        return True

    @contextmanager
    def _alone(self) -> Iterator[None]:
        try:
            self.path.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        except OSError as error:
            raise self._refused(error) from None
        with folder_lock(self.path):
            yield

    def _ledger(self) -> dict[str, list[str]]:
        try:
            found = json.loads(self.read(_LEDGER) or b"{}")
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise UserError(f"{self.path / _LEDGER}: cannot be understood", "move it away, and what is listed in it")
        return found

    def _claim(self) -> None:
        """Make the folder its owner's alone when it first becomes ours, and clear what a killed one left half done."""
        try:
            if self.read(_LEDGER) is None:
                self.path.chmod(_PRIVATE)
            for path in self.path.iterdir():
                if _DRAFT.fullmatch(path.name):
                    path.unlink(missing_ok=True)
        except OSError as error:
            raise self._refused(error) from None

    def _refused(self, error: OSError) -> UserError:
        return UserError(f"{self.path}: {error.strerror}", "run this as root, or name another --out")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
