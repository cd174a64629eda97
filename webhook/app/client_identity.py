"""Composition of the authentication strategy that `--client-identity` selects."""

import time
from dataclasses import dataclass

from webhook.adapters.clocks import WallClock
from webhook.app.callers import Callers
from webhook.app.supervision import Loop
from webhook.app.telemetry import Telemetry
from webhook.authentication.forwarded_certificate import ForwardedCaFile, ForwardedCertificateStrategy
from webhook.authentication.secret_path_file import WARNING, SecretPathFile, SecretPathStrategy
from webhook.authentication.strategies import AuthenticationStrategy, MutualTlsStrategy
from webhook.settings import ClientIdentity, Settings


@dataclass(frozen=True, slots=True)
class ClientAuthentication:
    """Client authentication as configured. `loops` keep it current."""

    mode: ClientIdentity
    strategy: AuthenticationStrategy
    loops: tuple[Loop, ...] = ()
    authorities: ForwardedCaFile | None = None

    @property
    def warning(self) -> str:
        """Warning about a mode with weaker authentication, "" for the others."""
        return WARNING if self.mode is ClientIdentity.REDUCED else ""

    def list_unready(self) -> list[str]:
        """Return the reasons why no client could be authenticated; empty if there are none."""
        if self.authorities is not None and self.authorities.value.end_seconds <= time.time():
            return ["all CAs of callers behind the proxy have expired"]
        return []

    def read_expiry_seconds(self) -> dict[str, float]:
        """Return the expiry of the CA certificates behind it, in seconds since the Unix epoch, by name."""
        return {"forwarded-ca": self.authorities.value.not_after_seconds} if self.authorities is not None else {}


def open_client_authentication(
    settings: Settings, telemetry: Telemetry, callers: Callers | None
) -> ClientAuthentication:
    """Return the strategy; `callers` is None in reduced mode only. UserError: an invalid file."""
    if callers is None:
        if settings.reduced_path_file is None:
            raise LookupError("settings with reduced mode must name the file of its path")
        paths = SecretPathFile(settings.reduced_path_file, telemetry.build_file_reports("reduced path"))
        return ClientAuthentication(settings.client_identity, SecretPathStrategy(paths), (paths.run,))
    if settings.forwarded_ca is None:
        return ClientAuthentication(settings.client_identity, MutualTlsStrategy(callers.authenticator))
    authorities = ForwardedCaFile(settings.forwarded_ca, telemetry.build_file_reports("forwarded CAs"))
    strategy = ForwardedCertificateStrategy(callers.authenticator, callers.identities, authorities, WallClock())
    return ClientAuthentication(settings.client_identity, strategy, (authorities.run,), authorities)
