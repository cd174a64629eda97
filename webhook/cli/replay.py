"""`podgate replay`: a sequence of events against a policy, in virtual time."""

import asyncio
from collections import Counter
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, BinaryIO

import click
import msgspec

from webhook.app.offline import open_replay
from webhook.commands.pages.table import format_table
from webhook.core.plain_text import escape_json
from webhook.errors import StoreUnavailableError, UserError
from webhook.replay.engine import Replay
from webhook.replay.events import EXAMPLES, read_events
from webhook.support.input_files import open_lines

_EPILOG = "\b\nEvents, one JSON object per line, `at` in seconds. Optional fields follow an example:\n" + "\n".join(
    f"  {example}" for example in EXAMPLES
)


@click.command(epilog=_EPILOG)
@click.argument("events", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--policy", required=True, type=click.Path(path_type=Path), help="the policy document")
@click.option("--store", default="memory", show_default=True, help="the counter store: memory, or the URL of a Redis")
def replay(events: Path, policy: Path, store: str) -> None:
    """Replay EVENTS against a policy in virtual time: one JSON line per event, and a summary on stderr.

    `-` reads standard input. An invalid line stops the replay with exit code 2 and is named on stderr.
    """
    folder = Path() if str(events) == "-" else events.parent
    opened = open_replay(policy, folder, store)
    with open_lines(events) as lines:
        asyncio.run(_play(opened, lines, str(events)))


async def _play(opened: AbstractAsyncContextManager[Replay], lines: BinaryIO, name: str) -> None:
    """Replay all lines, in memory or in Redis, and print a summary."""
    counts: Counter[str] = Counter()
    try:
        async with opened as player:
            await _play_lines(player, lines, name, counts)
            breakers = await player.summarize_breakers()
    except StoreUnavailableError as error:
        raise UserError(f"--store: {error}", "give the URL of a reachable Redis, or leave it out") from None
    figures = ", ".join(f"{what} {count}" for what, count in sorted(counts.items()))
    click.echo(f"{counts.total()} events: {figures or 'none'}", err=True)
    for row in format_table(breakers) if breakers else ():
        click.echo(row, err=True)


async def _play_lines(player: Replay, lines: BinaryIO, name: str, counts: Counter[str]) -> None:
    """Replay line by line; UserError names the first invalid line."""
    for number, event in read_events(lines, name):
        try:
            result: dict[str, Any] = (await player.play(event)).line
        except UserError as error:
            raise UserError(f"{name}:{number}: {error}", error.remedy) from None
        counts[str(result.get("decision", event.kind))] += 1
        click.echo(escape_json(msgspec.json.encode({"at": event.at, **result}).decode()))
