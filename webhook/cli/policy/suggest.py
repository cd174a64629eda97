"""`podgate policy suggest`: limits for a policy from past requests, with their evidence."""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from webhook.cli.options.command_group import format_document
from webhook.cli.options.request_options import refuse_since, request_options
from webhook.commands.pages.first_policy_page import build_first_document, format_first_policy
from webhook.commands.pages.suggestion_document import build_document
from webhook.commands.pages.suggestion_page import format_suggestion
from webhook.core.document.formats.names import FormatError, check_http_url
from webhook.core.plain_text import escape_json, escape_line
from webhook.core.policy_fields.nodes import BasicAuth, PrometheusSource
from webhook.errors import UserError
from webhook.support.redaction import mask

if TYPE_CHECKING:
    from webhook.operations.recorded_events import RequestSource

_HEADROOM_PERCENT = 25
_HEADROOM_MAX = 900


@click.command()
@click.argument("service", required=False)
@click.option("--policy", default="live", show_default=True, help="The policy to change: a file, or `live`.")
@click.option(
    "--headroom",
    type=click.IntRange(0, _HEADROOM_MAX),
    default=_HEADROOM_PERCENT,
    show_default=True,
    metavar="PERCENT",
    help="Room of each limit above the largest use.",
)
@click.option("--prometheus", metavar="URL", help="Also the history of a Prometheus; without --since of a week.")
@click.option("--prometheus-ca", metavar="FILE", help="CAs of its certificate, PEM.")
@click.option("--prometheus-token-file", metavar="FILE", help="A bearer token for it.")
@click.option(
    "--prometheus-username-file", metavar="FILE", help="Or the name of a user, and --prometheus-password-file."
)
@click.option("--prometheus-password-file", metavar="FILE", help="The user's password.")
@click.option("--audit", is_flag=True, help="Print a whole first policy for the cluster instead, all in Audit.")
@request_options
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
def suggest(  # noqa: PLR0913  one parameter an option
    *,
    service: str | None,
    policy: str,
    headroom: int,
    prometheus: str | None,
    prometheus_ca: str | None,
    prometheus_token_file: str | None,
    prometheus_username_file: str | None,
    prometheus_password_file: str | None,
    audit: bool,
    source: "RequestSource",
    output: str,
) -> None:
    """Suggest limits and breaker thresholds from past requests, for all services or for one SERVICE.

    \b
    podgate policy suggest                                     # from the decisions that servers keep
    podgate policy suggest web --policy policy.yaml --record events.jsonl
    podgate policy suggest --prometheus http://127.0.0.1:9090  # and from its history of the last week
    podgate policy suggest --audit > policy.yaml               # a first policy, for a cluster without one

    Prints the part of the policy that would change, with its evidence in comments: the largest and the usual use of
    each window, when and by whom, what was not seen, and how many past Pods it would have denied. Nothing is written.

    Exit code: 0 printed, 2 bad input or no server, 4 no such service.
    """  # noqa: D301 - the backslash-b keeps click from filling these lines
    if audit:
        if service is not None or prometheus or source.record is not None or source.decisions is not None:
            raise UserError("--audit: with a service or with requests", "leave them out: it reads the cluster")
        _print_first_policy(source, headroom, output)
        return
    from webhook.operations.policy_suggestion import SuggestionInputs, suggest_policy  # noqa: PLC0415  --help needs less

    if prometheus is None:  # its history is that long, too
        refuse_since(source)
    user = _build_basic_auth(prometheus_username_file, prometheus_password_file, prometheus_token_file)
    history = None if prometheus is None else _build_source(prometheus, prometheus_ca, prometheus_token_file, user)
    done = asyncio.run(suggest_policy(SuggestionInputs(policy, service or "", headroom, source, history)))
    for warning in done.warnings:
        click.echo(escape_line(f"warning: {warning}"), err=True)
    _print(build_document(done.suggestion), format_suggestion(done.suggestion), output)


def _build_basic_auth(username_file: str | None, password_file: str | None, token_file: str | None) -> BasicAuth | None:
    if username_file is None and password_file is None:
        return None
    if username_file is None or password_file is None:
        raise UserError("--prometheus-username-file, --prometheus-password-file: one without the other", "give both")
    if token_file is not None:
        remedy = "give one of them"
        raise UserError("--prometheus-token-file: beside a user: a request has a token or a password", remedy)
    return BasicAuth(username_file, password_file)


def _build_source(
    url: str, ca_file: str | None, token_file: str | None, basic_auth: BasicAuth | None
) -> PrometheusSource:
    try:
        check_http_url(url)
    except FormatError as error:
        raise UserError(f"--prometheus {mask(url)!r}: {error.reason}", error.remedy) from None
    return PrometheusSource(url, ca_file=ca_file, token_file=token_file, basic_auth=basic_auth)


def _print_first_policy(source: "RequestSource", headroom: int, output: str) -> None:
    from webhook.operations.first_policy import suggest_first_policy  # noqa: PLC0415  --help needs less

    found = asyncio.run(suggest_first_policy(source.kubeconfig, headroom))
    _print(build_first_document(found), format_first_policy(found), output)


def _print(document: dict[str, Any], lines: Iterable[str], output: str) -> None:
    if output == "json":
        click.echo(format_document(document, output))
        return
    for line in lines:
        click.echo(escape_json(line))
