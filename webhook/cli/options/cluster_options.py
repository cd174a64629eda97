"""Options for the cluster: kubeconfig and context."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

KUBECONFIG = Path("~/.kube/config")
_PATH = click.Path(path_type=Path)


@dataclass(frozen=True, slots=True)
class ClusterLocation:
    """A kubeconfig, and one of its contexts; None for the current one."""

    kubeconfig: Path
    context: str | None


def cluster(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for the cluster, passed as `where`."""

    @click.option("--kubeconfig", type=_PATH, envvar="KUBECONFIG", help="Cluster and user.  [default: ~/.kube/config]")
    @click.option("--context", help="Context of the kubeconfig.  [default: its current one]")
    @wraps(command)
    def run(*, kubeconfig: Path | None, context: str | None, **rest: Any) -> None:
        command(where=ClusterLocation(kubeconfig or KUBECONFIG.expanduser(), context), **rest)

    return run
