"""`podgate replay`: a sequence of events over virtual time against a policy, by the server's own evaluation."""

import asyncio
from codecs import BOM_UTF8
from collections import Counter
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, BinaryIO

import click
import msgspec

from webhook.app.offline import open_replay
from webhook.errors import StoreUnavailableError, UserError
from webhook.offline.output.table import table
from webhook.replay.engine import Replay
from webhook.replay.events import EXAMPLES, ReplayEvent, parse
from webhook.support.input_files import bounded_lines, standard_input

_EPILOG = "\b\nEvents, one JSON object a line, `at` in seconds (behind some: what may be added):\n" + "\n".join(
    f"  {example}" for example in EXAMPLES
)


@click.command(epilog=_EPILOG)
@click.argument("events", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--policy", required=True, type=click.Path(path_type=Path), help="the policy document to judge by")
@click.option("--store", default="memory", show_default=True, help="where counters live: memory, or a Redis by its URL")
def replay(events: Path, policy: Path, store: str) -> None:
    """Play EVENTS over virtual time against a policy: one JSON line out for each line in, a summary on stderr.

    `-` reads standard input. A bad line stops the replay with exit 2 and is named on stderr.
    """
    folder = Path() if str(events) == "-" else events.parent
    opened = open_replay(policy, folder, store)
    if str(events) == "-":
        asyncio.run(_play(opened, standard_input(), "-"))
    else:
        try:
            lines = events.open("rb")
        except OSError as error:
            raise UserError(f"{events}: {error.strerror}", "give a readable file of JSON lines") from None
        with lines:
            asyncio.run(_play(opened, lines, str(events)))


async def _play(opened: AbstractAsyncContextManager[Replay], lines: BinaryIO, name: str) -> None:
    """Play all lines, in process or with the real scripts in a real Redis, and sum up."""
    counts: Counter[str] = Counter()
    try:
        async with opened as player:
            await _play_lines(player, lines, name, counts)
            breakers = await player.breakers()
    except StoreUnavailableError as error:
        raise UserError(f"--store: {error}", "give the URL of a Redis that answers, or leave it out") from None
    figures = ", ".join(f"{what} {count}" for what, count in sorted(counts.items()))
    click.echo(f"{counts.total()} events: {figures or 'none'}", err=True)
    for row in table(breakers) if breakers else ():
        click.echo(row, err=True)


async def _play_lines(player: Replay, lines: BinaryIO, name: str, counts: Counter[str]) -> None:
    """Play line by line; the first bad line stops the replay and names itself."""
    before = 0.0
    for number, line in enumerate(bounded_lines(lines, name), start=1):
        if not line.strip():
            continue
        try:
            event: ReplayEvent = parse(line.removeprefix(BOM_UTF8) if number == 1 else line)
            if event.at < before:
                message = f"at: {event.at:g}: time does not go back, the line before was at {before:g}"
                raise UserError(message)  # noqa: TRY301  told with its line, like the others
            before = event.at
            result: dict[str, Any] = await player.play(event)
        except UserError as error:
            raise UserError(f"{name}:{number}: {error}", error.remedy) from None
        counts[str(result.get("decision", event.kind))] += 1
        click.echo(msgspec.json.encode({"at": event.at, **result}).decode())
