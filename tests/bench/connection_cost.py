"""CPU cost of a new connection: a handshake with certificates on both sides, one review, and the close."""

import asyncio
from collections.abc import Sequence

from tests.bench.server_load import Target, cpu_seconds, line, send
from tests.harness.server_process import Files


async def connections(targets: Sequence[Target], files: Files, rounds: int, count: int) -> list[str]:
    """Return what there is to print: milliseconds a connection, and times those of the last target, round by round."""
    spent: dict[str, list[float]] = {target.name: [] for target in targets}
    for number in range(rounds + 1):
        token = files.signer.token()
        for target in targets if number % 2 else reversed(targets):
            cost_seconds = await _round(target, files, count, token)
            if number:  # in the first one caches fill
                spent[target.name].append(1000 * cost_seconds / count)
    *own, other = targets
    return [
        f"milliseconds of server CPU for a new connection with one review, {rounds} rounds of {count}",
        *(line(target.name, spent[target.name], ".2f") for target in targets),
        f"times {other.name}",
        *(line(f"  {one.name}", _ratios(spent[one.name], spent[other.name]), ".2f") for one in own),
    ]


def _ratios(own: Sequence[float], other: Sequence[float]) -> list[float]:
    return [mine / theirs for mine, theirs in zip(own, other, strict=True)]


async def _round(target: Target, files: Files, count: int, token: str) -> float:
    """Open so many, one after another; return the seconds of CPU that they have cost the server."""
    context, calls = files.pki.context(files.caller), target.traffic.calls(count, token)
    host, port = target.address.split(":")
    before = cpu_seconds(target.pid)
    for call in calls:
        pair = await asyncio.open_connection(host, int(port), ssl=context, server_hostname="localhost")
        await send(pair, [call])
        pair[1].close()
        await pair[1].wait_closed()
    return cpu_seconds(target.pid) - before
