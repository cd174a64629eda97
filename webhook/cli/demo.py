"""`podgate demo`: Podgate on loopback, shown with a real server and real AdmissionReviews."""

import asyncio
import os
import tempfile
from functools import partial
from pathlib import Path

import click

from webhook.demo import story
from webhook.demo.console import ConsoleInputs
from webhook.errors import UserError
from webhook.operations.console_policies import ClusterPolicies
from webhook.operations.console_ports import build_hands
from webhook.settings import parse_store
from webhook.support.kubeconfig import Kubeconfig
from webhook.support.redaction import mask


@click.command()
@click.option("--once", is_flag=True, help="exit at the end, instead of keeping the server up")
@click.option("--redis", metavar="URL", help="keep counters in this Redis; they expire within a day")
def demo(*, once: bool, redis: str | None) -> None:
    """Demonstrate Podgate on loopback in half a minute: mutual TLS and JWT, rewriting, a quota, a breaker."""
    if redis is not None:
        try:
            parse_store(redis)
        except ValueError as error:
            raise UserError(f"--redis: {mask(redis)!r}", str(error)) from None
    with tempfile.TemporaryDirectory(prefix="podgate-demo-") as folder:
        asyncio.run(story.run(Path(folder), redis, once=once, find_inputs=_find_inputs))


def _find_inputs(overrides: Path) -> ConsoleInputs:
    """Return what the demo's console acts and judges by: the file of overrides and the demo's server, no cluster."""
    nowhere = Kubeconfig.from_text(os.devnull, None)
    return ConsoleInputs(build_hands(None, overrides), partial(ClusterPolicies, nowhere))
