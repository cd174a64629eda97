"""`podgate demo`: Podgate on loopback, shown with a real server and real AdmissionReviews."""

import asyncio
import tempfile
from pathlib import Path

import click

from webhook.demo import story
from webhook.errors import UserError
from webhook.settings import parse_store
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
        asyncio.run(story.run(Path(folder), redis, once=once))
