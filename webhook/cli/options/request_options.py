"""Options for past requests: a record, decisions, or a server; shared by the commands that judge them again."""

from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from webhook.cli.options import durations
from webhook.cli.options.cluster_options import kubeconfig_options
from webhook.commands.namespace_labels import read_namespace_labels
from webhook.errors import UserError
from webhook.support.kubeconfig import Kubeconfig

if TYPE_CHECKING:
    from webhook.operations.recorded_events import RequestSource

PATH = click.Path(path_type=Path, allow_dash=True)
_DECISIONS_MAX = 50_000
Command = Callable[..., Any]
_OPTIONS = (
    click.option("--record", type=PATH, help="Events that `podgate serve --record` wrote, instead of decisions."),
    click.option("--decisions", type=PATH, help="Decisions of `podgate decisions -o json`, instead of a server's."),
    click.option(
        "--server",
        metavar="URL",
        envvar="PODGATE_DECISIONS",
        help="URL of a server's decision port.  [default: of a server Pod, by port-forward, else http://127.0.0.1:8082]",
    ),
    click.option("--since", metavar="DURATION", help="Only the last, such as 10m."),
    click.option(
        "--limit",
        type=click.IntRange(1, _DECISIONS_MAX),
        default=_DECISIONS_MAX,
        show_default=True,
        help="Read at most this many decisions, newest first.",
    ),
    click.option("--namespaces", type=PATH, help="Labels of Namespaces: `kubectl get namespaces -o yaml`."),
    kubeconfig_options(),
)


def refuse_since(source: "RequestSource") -> None:
    """UserError: --since with a file, which is read whole."""
    if source.since and (source.record is not None or source.decisions is not None):
        raise UserError(
            "--since: with a file of requests", "leave it out, or cut the file: it selects a server's decisions"
        )


def request_options(command: Command) -> Command:
    """Add the options, passed as one RequestSource in `source`."""

    @wraps(command)
    def run(
        *,
        record: Path | None,
        decisions: Path | None,
        server: str | None,
        since: str | None,
        limit: int,
        namespaces: Path | None,
        kubeconfig: Kubeconfig,
        **rest: Any,
    ) -> Any:
        from webhook.operations.recorded_events import RequestSource  # noqa: PLC0415  --help needs less

        if record is not None and decisions is not None:
            raise UserError("--record and --decisions: both are given", "give the one with the requests to judge")
        if since is not None:
            durations.parse_seconds("--since", since)
        labels: Mapping[str, Mapping[str, str]] | None = (
            None if namespaces is None else read_namespace_labels(namespaces)
        )
        source = RequestSource(
            record=record,
            decisions=decisions,
            server=server,
            since=since or "",
            limit=limit,
            namespaces=labels,
            kubeconfig=kubeconfig,
        )
        return command(source=source, **rest)

    decorated: Command = run
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated
