"""Composition of authentication: keys, identities and token revocations, as configured in the settings."""

from dataclasses import dataclass

from webhook.adapters.clocks import WallClock
from webhook.adapters.jwks_url import JwksUrl
from webhook.app.cluster import Sources
from webhook.app.supervision import Loop
from webhook.app.telemetry import Telemetry
from webhook.authentication.authenticator import Authenticator, TokenLimits
from webhook.authentication.identities import Role
from webhook.authentication.identity_file import IdentityFile
from webhook.authentication.jwks_file import JwksFile
from webhook.authentication.jwks_refresher import JwksRefresher, KeyClocks
from webhook.authentication.published_keys import JwksUnion, PublishedKeys
from webhook.authentication.revocations import RevocationFile
from webhook.ports import Clock, KeyPublisher
from webhook.settings import ClientIdentity, Settings


@dataclass(frozen=True, slots=True)
class Callers:
    """The authenticator and its sources. `loops` keep them current."""

    authenticator: Authenticator
    identities: IdentityFile
    keys: JwksUnion
    loops: tuple[Loop, ...]

    def list_unready(self) -> list[str]:
        """Return the reasons why tokens of the API server cannot be verified; empty if they can."""
        callers = self.identities.value.callers
        return self.keys.list_missing({caller.issuer for caller in callers if caller.role is Role.APISERVER})


def open_callers(settings: Settings, telemetry: Telemetry, clock: Clock, sources: Sources) -> Callers:
    """Open the files and key sources named in the settings; UserError for an invalid file."""
    if settings.identities is None:
        raise LookupError("settings without reduced mode must name the identities")
    identities = IdentityFile(
        settings.identities,
        telemetry.build_file_reports("identities"),
        behind_proxy=settings.client_identity is ClientIdentity.FORWARDED,
    )
    loops: list[Loop] = [identities.run]
    denials = None
    if settings.denied_tokens is not None:
        denials = RevocationFile(settings.denied_tokens, telemetry.build_file_reports("denied tokens"))
        loops.append(denials.run)
    key_sources = _open_key_sources(settings, telemetry, clock, sources)
    loops += [source.run for source in key_sources]
    keys = JwksUnion(key_sources)
    telemetry.metrics.keys.watch(keys.count_keys)
    limits = TokenLimits(settings.max_token_lifetime_seconds, settings.token_leeway_seconds, settings.token_binding)
    authenticator = Authenticator(identities, keys, WallClock(), limits, denials)
    return Callers(authenticator, identities, keys, tuple(loops))


def _open_key_sources(
    settings: Settings, telemetry: Telemetry, clock: Clock, sources: Sources
) -> list[JwksFile | JwksRefresher]:
    found: list[JwksFile | JwksRefresher] = []

    def add_refresher(name: str, publisher: KeyPublisher, *, binds: bool) -> None:
        keys = PublishedKeys(publisher, telemetry.build_unusable_keys(name))
        stale_max_seconds, reports = settings.jwks_max_stale_seconds, telemetry.build_fetch_reports(name)
        clocks = KeyClocks(clock, WallClock())
        found.append(
            JwksRefresher(name, keys.fetch, clocks, binds=binds, stale_max_seconds=stale_max_seconds, reports=reports)
        )

    if settings.jwks is not None:
        found.append(JwksFile(settings.jwks, telemetry.build_file_reports("key set")))
    if settings.jwks_url is not None:
        add_refresher("url", JwksUrl(settings.jwks_url, settings.jwks_ca), binds=False)
    if sources.cluster_keys is not None:
        add_refresher("cluster", sources.cluster_keys, binds=True)
    return found
