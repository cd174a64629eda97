"""`podgate replay`: a sequence of events over virtual time against a policy, by the server's own evaluation."""

import asyncio
import sys
from collections import Counter
from pathlib import Path
from typing import Any, TextIO

import click
import msgspec

from webhook.cli.events import EVENTS, Event, parse
from webhook.cli.replaying import Replay
from webhook.errors import UserError


@click.command(epilog="Events, one JSON object a line: " + "; ".join(EVENTS) + ". `-` reads standard input.")
@click.argument("events", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--policy", required=True, type=click.Path(path_type=Path), help="the policy document to judge by")
@click.option("--store", default="memory", show_default=True, help="where counters live: memory")
def replay(events: Path, policy: Path, store: str) -> None:
    """Play EVENTS against a policy: one JSON line out for each line in, and a summary on stderr."""
    if store != "memory":
        raise UserError(f"--store: {store!r}: not supported yet", "this version counts in process: leave it out")
    folder = Path() if str(events) == "-" else events.parent
    player = Replay(policy, folder)
    summary: Counter[str] = Counter()
    if str(events) == "-":
        asyncio.run(_play(player, sys.stdin, "-", summary))
    else:
        try:
            with events.open(encoding="utf-8") as lines:
                asyncio.run(_play(player, lines, str(events), summary))
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{events}: {error}", "give a readable file of JSON lines") from None
    figures = ", ".join(f"{name} {count}" for name, count in sorted(summary.items()))
    click.echo(f"{sum(summary.values())} events: {figures or 'none'}", err=True)


async def _play(player: Replay, lines: TextIO, name: str, summary: Counter[str]) -> None:
    """Play line by line; the first bad line stops the replay and names itself."""
    before = 0.0
    for number, line in enumerate(lines, start=1):
        try:
            event: Event = parse(line)
            if event.at < before:
                raise UserError(f"at: {event.at:g}: time does not go back, the line before was at {before:g}")  # noqa: TRY301
            before = event.at
            result: dict[str, Any] = await player.play(event)
        except UserError as error:
            raise UserError(f"{name}:{number}: {error}", error.remedy) from None
        summary[str(result.get("decision", event.kind))] += 1
        click.echo(msgspec.json.encode({"at": event.at, **result}).decode())
