"""`podgate override`: temporary changes of one service's policy."""

from collections.abc import Callable
from typing import Any

import click

from webhook.cli.options import override_options
from webhook.cli.options.command_group import format_document, output_option
from webhook.cli.options.override_options import OverridesLocation, OverrideTerms
from webhook.cli.options.server_options import complete_service_names
from webhook.commands.exception_target import parse_exception_target
from webhook.commands.pages.table import format_duration, format_table
from webhook.core.overrides import ManualBreakerState, Override
from webhook.core.plain_text import escape_line
from webhook.core.policy.model import Modes
from webhook.core.policy_fields import Mode
from webhook.errors import UserError

_CONCERNS = Modes.__struct_fields__


@click.command()
@click.argument("service", required=False, shell_complete=complete_service_names)
@click.option(
    "--quota-factor", metavar="NUMBER", help="Multiply each limit of the service's own windows, such as 0.5 or 3."
)
@click.option(
    "--mode",
    "modes",
    multiple=True,
    metavar="CONCERN=MODE",
    help=f"Change a mode, such as quota=Audit; repeatable. CONCERN: {', '.join(_CONCERNS)}. MODE: {', '.join(Mode)}.",
)
@click.option(
    "--workload", metavar="KIND/NAME", help="Only for the Pods of this workload, such as deployments/web; needs -n."
)
@click.option("--pods", metavar="SELECTOR", help="Only for Pods with these labels, such as app=web; needs -n.")
@click.option("-n", "--namespace", help="Namespace of the workload, or of the Pods.")
@click.option("--variant", metavar="NAME", help="With --clear: only the overrides of this variant's breaker.")
@click.option("--pass-breaker", is_flag=True, help="Let the Pods of --workload or --pods pass an open breaker.")
@override_options.term_options()
@click.option("--clear", is_flag=True, help="End all overrides in force for the service.")
@click.option("--list", "listing", is_flag=True, help="List the overrides in force.")
@output_option()
@override_options.location_options
def override(  # noqa: PLR0913  one argument an option
    *,
    service: str | None,
    quota_factor: str | None,
    modes: tuple[str, ...],
    workload: str | None,
    pods: str | None,
    namespace: str | None,
    variant: str | None,
    pass_breaker: bool,
    terms: Callable[[], OverrideTerms],
    clear: bool,
    listing: bool,
    output: str | None,
    where: OverridesLocation,
) -> None:
    """Change the policy of one SERVICE for a limited time. An override ends automatically.

    \b
    podgate override payment-api --quota-factor 3 --for 1h --reason INC-1234
    podgate override payment-api --mode quota=Audit --for 1h --reason INC-1234
    podgate override payment-api --workload deployments/web -n shop --pass-breaker --for 1h --reason INC-1234
    podgate override --list

    With --workload or --pods it is an exception: for new Pods of one workload, or with some labels, only. They are
    charged as all others.

    Servers apply it as soon as they have read it, usually within a second.

    It is written to ConfigMap podgate-system/podgate-overrides with your kubeconfig, so with your RBAC rights and in
    the audit log of Kubernetes; or to the file that servers read with --overrides.

    Exit code: 0 success, 2 bad input, 4 no such service.
    """  # noqa: D301 - the backslash-b keeps click from filling these lines
    if listing:
        _print_overrides(override_options.list_in_force(where), output)
        return
    if service is None:
        raise click.UsageError("Missing argument 'SERVICE', or --list")
    target = parse_exception_target(workload, pods, namespace)
    if variant is not None:
        _check_variant(target, clear=clear)
        override_options.clear(where, service, {"variant": variant, "breaker": ManualBreakerState.AUTOMATIC.value})
        return
    if clear:
        override_options.clear(where, service, target)
        return
    changed = override_options.parse_pairs("--mode", modes, "quota=Audit")
    if pass_breaker:
        _add_breaker_pass(changed, target)
    plain: dict[str, Any] = {"service": service, **target}
    if quota_factor is not None:
        plain["quotaFactor"] = quota_factor
    if changed:
        plain["modes"] = changed
    if plain == {"service": service, **target}:
        raise UserError("nothing to do", "give --quota-factor or --mode, or --clear or --list")
    override_options.put(where, terms(), plain)


def _check_variant(target: dict[str, Any], *, clear: bool) -> None:
    """Refuse a variant where it would mean nothing."""
    if target:
        raise UserError("--variant: excludes --workload and --pods", "give one of them")
    if not clear:
        raise UserError("--variant: without --clear", "force its breaker: podgate breaker open SERVICE --variant NAME")


def _add_breaker_pass(modes: dict[str, str], target: dict[str, Any]) -> None:
    """Add the mode in which the breaker denies nothing."""
    if not target:
        remedy = "name it with --workload or --pods; for the whole service: podgate breaker close"
        raise UserError("--pass-breaker: it is for a part of the service's Pods", remedy)
    if "breaker" in modes:
        raise UserError("--pass-breaker and --mode breaker=... exclude each other", "give one of the two")
    modes["breaker"] = Mode.AUDIT.value


def _print_overrides(entries: list[Override], output: str | None) -> None:
    text = format_document([entry.encode_plain() for entry in entries], output)
    if text is not None:
        click.echo(text)
        return
    rows = [(escape_line(entry.service), _format_time_left(entry), escape_line(str(entry))) for entry in entries]
    click.echo("\n".join(format_table([("SERVICE", "LEFT", "OVERRIDE"), *rows])) if rows else "no override is in force")


def _format_time_left(entry: Override) -> str:
    return format_duration(max(0, -(-(entry.until_us - override_options.read_now_us()) // 1_000_000)))
