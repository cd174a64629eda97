"""`podgate policy webhooks`: the webhook configurations for a policy, for `kubectl apply`."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import click
from cryptography.hazmat.primitives.serialization import Encoding

from certs import read, read_certificates
from webhook.authentication.secret_path_file import read_paths
from webhook.cli.options.certs_errors import convert_certs_errors
from webhook.cli.options.durations import parse_base_url
from webhook.commands.pages.webhooks_page import format_explanation
from webhook.commands.pages.yaml_text import format_yaml_stream
from webhook.commands.policy_argument import read_document
from webhook.core.document import DocumentError, Purpose, load
from webhook.core.plain_text import escape_line
from webhook.core.webhook_configurations import (
    ClientConfig,
    ServiceReference,
    TooManyEntriesError,
    explain_configurations,
    render_configurations,
)
from webhook.errors import UserError

Json = dict[str, Any]

_SERVICE = re.compile(r"([a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)/([a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)(?::([1-9]\d{0,4}))?")
_PORT, _PORT_MAX = 443, 65535


@click.command()
@click.option(
    "--policy", "path", metavar="PATH", required=True, envvar="PODGATE_POLICY", help='The document ("-": stdin).'
)
@click.option("--ca", type=click.Path(path_type=Path), help="CAs of the server's certificate, PEM.")
@click.option("--without-ca", is_flag=True, help="Leave out caBundle and port: another controller manages them.")
@click.option("--service", metavar="NAMESPACE/NAME[:PORT]", help="The Service.  [default: podgate-system/podgate:443]")
@click.option("--url", metavar="https://HOST:PORT", help="The server's address, if it has no Service.")
@click.option(
    "--path-file",
    type=click.Path(path_type=Path),
    help="For a server in reduced mode: its --reduced-path-file. Its first line is the path to call.",
)
@click.option("--all-calls", is_flag=True, help="Call Podgate for every Pod in the services' namespaces.")
@click.option("--explain", is_flag=True, help="Print instead which calls for new Pods are made or left out, and why.")
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), help="[default: yaml; with --explain, a table]")
@convert_certs_errors
def webhooks(
    *,
    path: str,
    all_calls: bool,
    explain: bool,
    output: str | None,
    **of_client: Any,  # the options of `_build_client`
) -> None:
    """Print the webhook configurations for a policy.

    \b
    podgate policy webhooks --policy policy.yaml --ca pki/ca.crt \\
        | kubectl apply --server-side -f -

    The API server then calls Podgate only for Pods that a service may own, and leaves out calls that could not
    change, deny or count a Pod. Apply them again whenever a service's match or failureMode, all its modes, or the
    exemptions change.
    Exit code: 0, 1 the document has mistakes, 2 unreadable or not renderable.
    """  # noqa: D301 - the backslash-b keeps click from filling these lines
    client = None if explain else _build_client(**of_client)
    raw = read_document(path)
    try:
        loaded = load(raw, Purpose.SERVE).policy
        if client is None:
            text = _format_explanation(explain_configurations(loaded.policy, loaded.hash, all_calls=all_calls), output)
        else:
            text = _format_configurations(
                render_configurations(loaded.policy, client, loaded.hash, all_calls=all_calls), output
            )
    except DocumentError as error:
        for problem in error.problems:
            click.echo(escape_line(f"error: {path}:{problem}"), err=True)
        sys.exit(1)
    except TooManyEntriesError as error:
        raise UserError(f"{path}: {error}", error.remedy) from None
    click.echo(text, nl=False)


def _build_client(
    *, ca: Path | None, without_ca: bool, service: str | None, url: str | None, path_file: Path | None
) -> ClientConfig:
    if service is not None and url is not None:
        raise UserError(
            "--service and --url exclude each other", "give the one by which the API server reaches Podgate"
        )
    if url is not None:
        parse_base_url("--url", url)
    target = url if url is not None else _parse_reference(service, None if without_ca else _PORT)
    if (ca is None) != without_ca:
        remedy = "give --ca FILE, or --without-ca if the controller or cert-manager manages the certificates"
        raise UserError("give one of --ca and --without-ca", remedy)
    # Encoded again, so that a private key in the same file is not copied.
    certificates = read_certificates(ca) if ca is not None else ()
    bundle = b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)
    secret = read_paths(read(path_file), path_file)[0] if path_file is not None else ""
    return ClientConfig(target, bundle, secret)


def _format_configurations(found: tuple[Json, ...], output: str | None) -> str:
    return (
        _format_json({"apiVersion": "v1", "kind": "List", "items": found})
        if output == "json"
        else format_yaml_stream(found)
    )


def _format_explanation(found: Json, output: str | None) -> str:
    if output is None:
        return "".join(f"{line}\n" for line in format_explanation(found))
    return _format_json(found) if output == "json" else format_yaml_stream((found,))


def _format_json(document: Json) -> str:
    return f"{json.dumps(document, indent=2)}\n"


def _parse_reference(text: str | None, port: int | None) -> ServiceReference:
    """Parse a Service reference; `port` is the default."""
    if text is None:
        return ServiceReference(port=port)
    found = _SERVICE.fullmatch(text)
    if found is None or int(found[3] or 1) > _PORT_MAX:
        remedy = "write NAMESPACE/NAME[:PORT], such as podgate-system/podgate:443"
        raise UserError(f"--service {text!r}: not a port of a Service", remedy)
    return ServiceReference(found[1], found[2], int(found[3]) if found[3] else port)
