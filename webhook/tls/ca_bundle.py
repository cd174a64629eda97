"""CA bundle of the webhook configurations, with a check that the serving certificate verifies against it."""

import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from webhook.authentication.certificate_errors import find_malformed_extension
from webhook.authentication.client_ca import REISSUE_REMEDY
from webhook.errors import UserError
from webhook.support.watched_file import WatchedFile
from webhook.tls.handshake_probe import describe_error, make_client, probe_handshake

_FILE_BYTES_MAX = 1024 * 1024


@dataclass(frozen=True, slots=True)
class CaBundle:
    """A client context that trusts the bundle, and the expiry of its first CA (seconds since the Unix epoch)."""

    client: ssl.SSLContext
    not_after_seconds: int


@dataclass(frozen=True, slots=True)
class _Probe:
    served: ssl.SSLContext
    bundle: CaBundle
    second: int
    obstacle: str | None


class CaBundleFile(WatchedFile[CaBundle]):
    """The watched bundle file. `served` returns the server's current TLS context."""

    def __init__(
        self,
        path: Path,
        served: Callable[[], ssl.SSLContext],
        on_reading: Callable[[str | None], None] = lambda _: None,
    ) -> None:
        super().__init__([path], _FILE_BYTES_MAX, lambda contents: _load_bundle(path, contents[0]), on_reading)
        self._path = path
        self._served = served
        self._probed: _Probe | None = None

    def find_obstacle(self) -> str | None:
        """Return why the API server would reject the serving certificate, or None. At most one handshake per second."""
        served, second, probed = self._served(), int(time.time()), self._probed
        if probed is None or (probed.served, probed.bundle, probed.second) != (served, self.value, second):
            probed = self._probed = _Probe(served, self.value, second, self._probe(served))
        return probed.obstacle

    def _probe(self, served: ssl.SSLContext) -> str | None:
        try:
            probe_handshake(served, self.value.client)
        except ssl.SSLError as error:
            return f"the serving certificate does not verify against {self._path}: {describe_error(error)}"
        return None


def _load_bundle(path: Path, content: bytes) -> CaBundle:
    try:
        authorities = x509.load_pem_x509_certificates(content)
        for number, authority in enumerate(authorities, 1):
            if (malformed := find_malformed_extension(authority)) is not None:
                raise UserError(f"{path}: certificate {number} in it: {malformed}", REISSUE_REMEDY)
        client = make_client(content.decode("ascii", "ignore"))
    except (ValueError, ssl.SSLError):
        raise UserError(f"{path}: holds no CA in PEM", "give the caBundle of the webhook configurations") from None
    return CaBundle(client, min(int(authority.not_valid_after_utc.timestamp()) for authority in authorities))
