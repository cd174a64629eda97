"""`podgate scheduler`: the configuration of a kube-scheduler that asks the extender."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import click

from webhook.cli.options import durations
from webhook.cli.options.command_group import CommandGroup
from webhook.cli.options.durations import parse_base_url
from webhook.commands.pages.yaml_text import format_yaml
from webhook.core.document.formats import fits
from webhook.core.scheduling.scheduler_configuration import (
    COMMENTS,
    DEFAULT_LEASE,
    DEFAULT_SCHEDULER,
    ExtenderAccess,
    SchedulerOptions,
    render_scheduler_configuration,
)
from webhook.errors import UserError

_FOLDER = "/etc/podgate/scheduler"
_TIMEOUT_SECONDS_MAX = 30


@click.group(cls=CommandGroup)
def scheduler() -> None:
    """Print the configuration of a second kube-scheduler, which asks `podgate extender`."""


@scheduler.command("config")
@click.option(
    "--url-prefix",
    metavar="https://HOST[:PORT]",
    default="https://podgate-extender.podgate-system.svc",
    show_default=True,
    help="URL of the extender. A static Pod resolves no Service: give its address, and --server-name.",
)
@click.option("--server-name", metavar="NAME", help="Name in the extender's certificate.  [default: the URL's host]")
@click.option("--ca-file", metavar="FILE", default=f"{_FOLDER}/ca.crt", show_default=True, help="CA of the extender.")
@click.option(
    "--cert-file",
    metavar="FILE",
    default=f"{_FOLDER}/tls.crt",
    show_default=True,
    help="The scheduler's client certificate, for a name in the extender's --scheduler-names.",
)
@click.option("--key-file", metavar="FILE", default=f"{_FOLDER}/tls.key", show_default=True, help="Its private key.")
@click.option("--kubeconfig", metavar="FILE", help="The scheduler's kubeconfig.  [default: its ServiceAccount]")
@click.option(
    "--profile",
    "profiles",
    metavar="NAME",
    multiple=True,
    default=("podgate-scheduler",),
    show_default=True,
    help="schedulerName that it serves; may be given several times.",
)
@click.option(
    "--lease",
    metavar="NAMESPACE/NAME",
    default="podgate-system/podgate-scheduler",
    show_default=True,
    help='Lease by which replicas elect a leader; "" for a single replica.',
)
@click.option(
    "--weight",
    type=click.IntRange(1, 100),
    default=5,
    show_default=True,
    help="Weight of the extender's score: each tenth of the score is worth WEIGHT x 10 points.",
)
@click.option("--http-timeout", metavar="DURATION", default="1s", show_default=True, help="Timeout of each call.")
@click.option(
    "--percentage-of-nodes-to-score",
    type=click.IntRange(0, 100),
    default=100,
    show_default=True,
    help="Percentage of the nodes that a Pod is tried on; 0: kube-scheduler chooses it by the number of nodes.",
)
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
def config(  # noqa: PLR0913  one parameter an option
    *,
    url_prefix: str,
    server_name: str | None,
    ca_file: str,
    cert_file: str,
    key_file: str,
    kubeconfig: str | None,
    profiles: tuple[str, ...],
    lease: str,
    weight: int,
    http_timeout: str,
    percentage_of_nodes_to_score: int,
    output: str,
) -> None:
    """Print the KubeSchedulerConfiguration of a kube-scheduler that asks `podgate extender`.

    Let a second kube-scheduler read it, with --config: any extender turns off the batching of the default one. All
    paths of files are absolute paths on the machine or in the Pod of that scheduler.

    Exit code: 0 success, 2 an option cannot be used.
    """
    url = parse_base_url("--url-prefix", url_prefix)
    if url.path not in {"", "/"}:
        raise UserError(
            f"--url-prefix {url_prefix!r}: the extender answers at no path {url.path}", "write https://HOST:PORT"
        )
    if server_name is not None and not fits(server_name, "dns-subdomain"):
        remedy = "write a DNS name of the extender's certificate, such as podgate-extender.podgate-system.svc"
        raise UserError(f"--server-name {server_name!r}: not a DNS name", remedy)
    if durations.parse_seconds("--http-timeout", http_timeout) > _TIMEOUT_SECONDS_MAX:
        reason = f"above {_TIMEOUT_SECONDS_MAX}s: while the extender hangs, each Pod holds all others up twice as long"
        raise UserError(f"--http-timeout {http_timeout!r}: {reason}", "write for example 1s")
    files = {"--ca-file": ca_file, "--cert-file": cert_file, "--key-file": key_file, "--kubeconfig": kubeconfig}
    for flag, path in files.items():
        if path is not None and not PurePosixPath(path).is_absolute():
            raise UserError(f"{flag} {path!r}: not an absolute path", f"write one such as {_FOLDER}/tls.crt")
    extender = ExtenderAccess(url_prefix.rstrip("/"), ca_file, cert_file, key_file, server_name)
    election = _parse_lease(lease)
    options = SchedulerOptions(
        _check_names(profiles, election), election, weight, http_timeout, percentage_of_nodes_to_score, kubeconfig
    )
    document = render_scheduler_configuration(extender, options)
    if output == "json":
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo("\n".join(_format_lines(document)))


def _format_lines(document: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the YAML, with the reasons for values as comments."""
    for line in format_yaml(document).splitlines():
        comment = COMMENTS.get(line.strip(" -").partition(":")[0])
        yield line if comment is None else f"{line:<42}# {comment}"


def _check_names(profiles: tuple[str, ...], lease: tuple[str, str] | None) -> tuple[str, ...]:
    for name, count in Counter(profiles).items():
        if not fits(name, "dns-subdomain"):
            raise UserError(f"--profile {name!r}: not a name of a scheduler", "write one such as podgate-scheduler")
        if count > 1:
            raise UserError(f"--profile {name!r}: given {count} times", "give each name once")
        if name == DEFAULT_SCHEDULER and lease != DEFAULT_LEASE:
            reason = "the cluster's own kube-scheduler has it, and two would bind the same Pods"
            own = f"for the configuration of that one itself, --lease {'/'.join(DEFAULT_LEASE)}"
            raise UserError(f"--profile {name!r}: {reason}", f"give another name, or, {own}")
    return profiles


def _parse_lease(text: str) -> tuple[str, str] | None:
    if not text:
        return None
    namespace, _, name = text.partition("/")
    if not (fits(namespace, "dns-label") and fits(name, "dns-subdomain")):
        remedy = 'write NAMESPACE/NAME, such as podgate-system/podgate-scheduler, or "" for a single replica'
        raise UserError(f"--lease {text!r}: not a namespace and a name", remedy)
    return namespace, name
