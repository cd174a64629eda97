"""Folder with the credentials of one server and of the API server: CA, two certificates, a token and its key set."""

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import jwt
from cryptography.x509 import DNSName

from certs.authority import parse_san
from certs.errors import CertsError
from certs.files import read, read_certificates, read_private_key, write
from certs.inspection import describe
from certs.issuance import IssueRequest, issue
from certs.token_issuer import PrivateKey, build_jwk, encode_key, format_key_set, new_key, sign

CA, SERVER, CALLER, TOKEN, TOKEN_KEY, KEY_SET = "ca", "server", "kube-apiserver", "token", "token.key", "jwks.json"
_TOKEN_SECONDS = 24 * 3600


@dataclass(frozen=True, slots=True)
class TokenClaims:
    """Claims of the API server's token."""

    issuer: str
    audience: str
    subject: str


class ServerFolder:
    """The folder of a server that is called by these names; `is_dry` writes nothing."""

    def __init__(self, path: Path, names: tuple[str, ...], claims: TokenClaims, *, is_dry: bool = False) -> None:
        self.path = path
        self._names = names
        self._claims = claims
        self._is_dry = is_dry

    def issue_missing(self) -> Iterator[str]:
        """Issue what is missing, and a new token for an old one; yield the files. CertsError: one is not usable."""
        yield from self._issue_certificates()
        yield from self._issue_token(int(time.time()))

    def _issue_certificates(self) -> Iterator[str]:
        name, *others = self._names
        servers = {} if self._has_pair(SERVER) else {"server": name, "sans": tuple(map(_format_san, others))}
        callers = {} if self._has_pair(CALLER) else {"clients": (CALLER,)}
        if (self.path / f"{SERVER}.crt").exists():
            self._check_server()
        if not servers and not callers:
            return
        if self._is_dry:
            stems = [stem for stem in (CA, SERVER, CALLER) if not self._has_pair(stem)]
            yield from (str(self.path / f"{stem}.crt") for stem in stems)
            return
        request = IssueRequest(**servers, **callers)  # type: ignore[arg-type]  # a field each
        yield from (str(path) for path, _ in issue(self.path, request))

    def _has_pair(self, stem: str) -> bool:
        certificate, key = self.path / f"{stem}.crt", self.path / f"{stem}.key"
        if certificate.exists() != key.exists():
            present, missing = (certificate, key) if certificate.exists() else (key, certificate)
            raise CertsError(f"{missing}: missing, beside {present}", f"restore it, or move {present} away")
        return certificate.exists()

    def _check_server(self) -> None:
        path = self.path / f"{SERVER}.crt"
        found = describe(read_certificates(path)[0], [], datetime.now(UTC))
        if found.is_expired:
            raise CertsError(f"{path}: expired at {found.not_after:%Y-%m-%dT%H:%M:%SZ}", self._build_renewal_remedy())
        missing = [name for name in map(_format_san, self._names) if name not in found.sans]
        if missing:
            again = f"move {path} and its key away, and run the command again, which issues them anew"
            raise CertsError(f"{path}: not valid for {', '.join(missing)}", again)

    def _build_renewal_remedy(self) -> str:
        return f"renew it: podgate certs rotate --out {self.path}"

    def _issue_token(self, now_seconds: int) -> Iterator[str]:
        token, key_file, keys = (self.path / name for name in (TOKEN, TOKEN_KEY, KEY_SET))
        is_new = not key_file.exists()
        if not is_new and keys.exists() and _compute_seconds_left(token, now_seconds) > _TOKEN_SECONDS / 2:
            return
        if self._is_dry:
            yield from (str(path) for path in (key_file, keys) if not path.exists())
            yield str(token)
            return
        if is_new:
            write(key_file, encode_key(new_key("ES256")), secret=True)
            yield str(key_file)
        key = cast("PrivateKey", read_private_key(key_file))
        if is_new or not keys.exists():
            published = format_key_set([build_jwk(key.public_key())])
            write(keys, published.encode(), secret=False, replace=True)
            yield str(keys)
        write(token, f"{sign(key, self._build_payload(now_seconds))}\n".encode(), secret=True, replace=True)
        yield str(token)

    def _build_payload(self, now_seconds: int) -> dict[str, str | int]:
        claims = self._claims
        return {
            "iss": claims.issuer,
            "aud": claims.audience,
            "sub": claims.subject,
            "client_id": claims.subject,
            "iat": now_seconds,
            "exp": now_seconds + _TOKEN_SECONDS,
            "jti": str(uuid.uuid4()),
        }


def _format_san(name: str) -> str:
    """Return a host as `dns:NAME` or `ip:ADDRESS`."""
    return f"{'dns' if isinstance(parse_san(name), DNSName) else 'ip'}:{name}"


def _compute_seconds_left(token: Path, now_seconds: int) -> float:
    if not token.exists():
        return 0
    try:
        claims = jwt.decode(read(token).decode().strip(), options={"verify_signature": False})
        return float(claims["exp"]) - now_seconds
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, RecursionError):
        return 0
