"""Composition of TLS for the admission port, from the files named in the settings."""

import time
from dataclasses import dataclass

from webhook.app.supervision import Loop
from webhook.app.telemetry import Telemetry
from webhook.settings import ExtenderSettings, Settings
from webhook.tls.ca_bundle import CaBundleFile
from webhook.tls.context import TlsFiles, TlsPaths


@dataclass(frozen=True, slots=True)
class ServingTls:
    """TLS files of the admission port. `loops` keep them current."""

    files: TlsFiles
    published: CaBundleFile | None
    loops: tuple[Loop, ...]

    def list_unready(self) -> list[str]:
        """Return the reasons why TLS handshakes with the API server would fail; empty if there are none."""
        loaded, now_seconds, reasons = self.files.value, time.time(), list[str]()
        if loaded.leaf_not_after_seconds <= now_seconds:
            reasons.append("the serving certificate has expired")
        elif self.published is not None and (obstacle := self.published.find_obstacle()) is not None:
            reasons.append(obstacle)
        if loaded.callers_end_seconds is not None and loaded.callers_end_seconds <= now_seconds:
            reasons.append("all CAs of clients have expired")
        return reasons

    def read_expiry_seconds(self) -> dict[str, float]:
        """Return the expiry of each certificate, in seconds since the Unix epoch; of several CAs the earliest."""
        loaded, published = self.files.value, self.published
        expiry: dict[str, float] = {"serving": loaded.leaf_not_after_seconds}
        if published is not None:
            expiry["serving-ca"] = published.value.not_after_seconds
        if loaded.client_ca_not_after_seconds is not None:
            expiry["client-ca"] = loaded.client_ca_not_after_seconds
        return expiry


def open_tls(settings: Settings | ExtenderSettings, telemetry: Telemetry) -> ServingTls:
    """Open the files named in the settings; UserError for an invalid one."""
    paths = TlsPaths(settings.tls_cert, settings.tls_key, settings.client_ca)
    files = TlsFiles(paths, telemetry.build_file_reports("certificates"))
    if isinstance(settings, ExtenderSettings) or settings.serving_ca is None:
        return ServingTls(files, None, (files.run,))
    published = CaBundleFile(
        settings.serving_ca, lambda: files.context, telemetry.build_file_reports("published bundle")
    )
    return ServingTls(files, published, (files.run, published.run))
