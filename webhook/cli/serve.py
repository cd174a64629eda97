"""`podgate serve`: the admission server."""

import os
from pathlib import Path

import click

from webhook import settings
from webhook.cli.options.settings import settings_options
from webhook.support.kubeconfig import Kubeconfig
from webhook.support.process_memory import defer_collection
from webhook.tls.context import skip_default_cas

_FILES = {
    "tls_cert": "server.crt",
    "tls_key": "server.key",
    "serving_ca": "ca.crt",
    "client_ca": "ca.crt",
    "jwks": "jwks.json",
    "identities": "identities.yaml",
}
"""Settings of a server whose files `podgate install --server-url` has issued."""


@click.command(
    epilog="Each flag is also an environment variable: --tls-cert is PODGATE_TLS_CERT. Flags win. "
    "Durations are Go's (5s, 1m30s). Make certificates with `podgate certs issue`, tokens with `podgate token issue`."
)
@click.option(
    "--pki",
    type=click.Path(path_type=Path),
    help="folder that `podgate install --server-url` has filled: the default of --tls-cert, --tls-key, --serving-ca,"
    " --client-ca, --jwks and --identities; --kubeconfig is then by default KUBECONFIG, else ~/.kube/config, and"
    " --webhook-configurations keep",
)
@settings_options(settings.Settings)
def serve(*, pki: Path | None, **flags: str | None) -> None:
    """Serve the API server's admission requests over mutual TLS and JWT, until SIGTERM."""
    if pki is not None:
        flags = {**flags, **_find_defaults(pki, flags)}
    parsed = settings.parse(flags, os.environ)
    with defer_collection(), skip_default_cas():
        from webhook.app.server import run  # noqa: PLC0415  --help and a wrong flag need no web server

    run(parsed)


def _find_defaults(pki: Path, flags: dict[str, str | None]) -> dict[str, str]:
    """Return the files of a folder for the settings that are not given, and the user's kubeconfig."""
    found = {name: str(pki / file) for name, file in _FILES.items()}
    if flags["policy"] is None and settings.name_variable("policy") not in os.environ:
        found["webhook_configurations"] = str(settings.WebhookConfigurationMode.KEEP)
        found["kubeconfig"] = str(Kubeconfig.from_text(os.environ.get("KUBECONFIG")))
    return {
        name: text
        for name, text in found.items()
        if flags[name] is None and settings.name_variable(name) not in os.environ
    }
