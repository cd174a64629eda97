"""Options for the cluster: kubeconfig and context, shared by all commands that connect to one."""

import os
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from webhook.support.kubeconfig import Kubeconfig

_KUBECONFIG = "Cluster and user; several files are merged, as by kubectl.  [default: KUBECONFIG, else ~/.kube/config]"
_IN_A_POD = "Cluster and user; several files are merged, as by kubectl.  [default: KUBECONFIG; in a Pod: its cluster]"
CONTEXT = "Context of the kubeconfig.  [default: its current one]"
Command = Callable[..., Any]


def kubeconfig_options(parameter: str = "kubeconfig", *, is_optional: bool = False) -> Callable[[Command], Command]:
    """Add --kubeconfig and --context, passed as one Kubeconfig; None without one if `is_optional`."""

    def decorate(command: Command) -> Command:
        @click.option(
            "--kubeconfig", "files", envvar="KUBECONFIG", metavar="FILE", help=_IN_A_POD if is_optional else _KUBECONFIG
        )
        @click.option("--context", metavar="NAME", help=CONTEXT)
        @wraps(command)
        def run(*, files: str | None, context: str | None, **rest: Any) -> Any:
            is_named = bool(files) or not is_optional
            return command(**{parameter: Kubeconfig.from_text(files, context) if is_named else None}, **rest)

        return run

    return decorate


def find_user_kubeconfig(parameters: dict[str, Any]) -> Kubeconfig:
    """Return the kubeconfig of a command whose options are only parsed, for completions."""
    return Kubeconfig.from_text(parameters.get("files") or os.environ.get("KUBECONFIG"), parameters.get("context"))
