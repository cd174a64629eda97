"""Identities that the API server can present: the valid caller, and one for each invalid credential."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from certs.authority import KeyPair, list_server_names
from certs.files import write_key_pair
from tests.cluster.admission_configuration import SERVICE_HOST, Caller
from tests.harness.identity import AUDIENCE, Pki, Signer, segment
from tests.harness.server_process import Files

CLUSTER_TOKEN = "cluster-token"
"""Caller with a valid certificate and a token file that a test writes, for example from `kubectl create token`."""


@dataclass(frozen=True)
class Identities:
    """The files of servers, and the callers that the API server may present, by load balancer name."""

    files: Files
    callers: dict[str, Caller]

    @classmethod
    def create(cls, folder: Path) -> "Identities":
        files = Files.create(folder)
        names = (*list_server_names("localhost"), *list_server_names("127.0.0.1"), *list_server_names(SERVICE_HOST))
        leaf = files.pki.authority.issue_server(SERVICE_HOST, names)
        write_key_pair(leaf, files.pki.paths.certificate, files.pki.paths.key, replace=True)
        return cls(files, _callers(files, folder))


def _callers(files: Files, folder: Path) -> dict[str, Caller]:
    stranger = Pki.create(folder / "stranger", "stranger-ca")
    now = datetime.now(UTC)
    past, future, far_future = (now + timedelta(hours=hours) for hours in (-2, 2, 100))
    good = _certificate(folder, "good", files.caller)
    token = _write_token(folder, "good", files.signer.token())
    kid = files.signer.jwk()["kid"]
    another_key = Signer(kid=kid)
    tokens = {
        "expired-token": files.signer.token(past.timestamp()),
        "not-yet-valid": files.signer.token(future.timestamp()),
        "too-long-a-life": files.signer.token(exp=int(far_future.timestamp())),
        "without-subject": files.signer.token(sub=None),
        "two-audiences": files.signer.token(aud=[AUDIENCE, "somebody-else"]),
        "unsigned": f"{segment({'alg': 'none', 'kid': kid})}.{segment(files.signer.claims())}.{segment(b'x')}",
        "unknown-key": Signer().token(),
        "no-token-at-all": "a password",
        "wrong-audience": files.signer.token(aud="somebody-else"),
        "wrong-issuer": files.signer.token(iss="somebody-else"),
        "wrong-subject": files.signer.token(sub="somebody-else"),
        "wrong-key": another_key.token(),
        "another-role": files.other.token(),
    }
    certificates = {
        "stranger": stranger.client(),
        "expired-certificate": files.pki.client(expired=True),
        "server-certificate": files.pki.client(server_only=True),
        "wrong-name": files.pki.client("somebody-else"),
    }
    return {
        "good": Caller(*good, token),
        "without-certificate": Caller(token=token),
        "without-token": Caller(*good),
        "reporter": Caller(
            *_certificate(folder, "reporter", files.pki.client("prober")),
            _write_token(folder, "reporter", files.other.token(client_id="prober")),
        ),
        CLUSTER_TOKEN: Caller(*good, folder / f"{CLUSTER_TOKEN}.token"),
        **{name: Caller(*good, _write_token(folder, name, text)) for name, text in tokens.items()},
        **{name: Caller(*_certificate(folder, name, leaf), token) for name, leaf in certificates.items()},
    }


def _certificate(folder: Path, name: str, credentials: KeyPair) -> tuple[Path, Path]:
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    write_key_pair(credentials, certificate, key)
    return certificate, key


def _write_token(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.token"
    path.write_text(text)
    return path
