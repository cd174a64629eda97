"""The loop of whoever leads: at every look it compares the clock on the wall with what is kept, and does what is due.

It waits for no moment: a timer that was set for one would miss it after a suspend, or when the clock is put right.
"""

import asyncio
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kubernetes_asyncio.client import ApiClient

from certs.cluster.api import Api
from certs.cluster.tasks import Done, Duty, Looked

PAUSE_SECONDS_MAX = 10.0
"""Between two looks. What drifts is wrong for no longer, and what is due waits no longer."""
_STAND_BY_SECONDS = 0.5
_STEPS_MAX = 50
"""At one look: more means that two mend each other's work."""


@dataclass(frozen=True, slots=True)
class Reports:
    """Whom to tell. A trouble is told once, with the same words when it is over."""

    on_done: Callable[[Done], None]
    on_trouble: Callable[[str], None]
    on_over: Callable[[str], None]
    on_ends: Callable[[Mapping[str, datetime]], None]
    on_anew: Callable[[], None]
    """What was told before holds no more: it begins anew, or another leads."""


async def run(
    client: ApiClient,
    is_leader: Callable[[], bool],
    duties: Sequence[Duty],
    reports: Reports,
    pause_seconds: float,
) -> None:
    """See to all duties whenever `is_leader`, until cancelled."""
    api = Api(client, is_leader)
    troubles: tuple[str, ...] = ()
    has_led = False
    reports.on_anew()
    while True:
        if has_led and not is_leader():
            troubles, has_led = (), False
            reports.on_anew()
        if is_leader():
            has_led = True
            found = await look(api, duties, reports)
            for text in troubles:
                if text not in found:
                    reports.on_over(text)
            for text in found:
                if text not in troubles:
                    reports.on_trouble(text)
            troubles = found
        await asyncio.sleep(min(pause_seconds, PAUSE_SECONDS_MAX if is_leader() else _STAND_BY_SECONDS))


async def look(api: Api, duties: Sequence[Duty], reports: Reports) -> tuple[str, ...]:
    """Do all that is due now; return the troubles that are left."""
    troubles: list[str] = []
    for duty in duties:
        for _ in range(_STEPS_MAX):
            looked = await _look(duty, api)
            reports.on_ends(looked.ends)
            if looked.done is not None:
                reports.on_done(looked.done)
            if looked.is_over or not api.may_write():
                break
        troubles += looked.troubles
    return tuple(dict.fromkeys(troubles))


async def _look(duty: Duty, api: Api) -> Looked:
    """Let it look. A defect of one keeps none of the others from being done."""
    try:
        return await duty.look(api, datetime.now(UTC).replace(microsecond=0))
    except Exception as error:  # noqa: BLE001  whatever the defect is; what it says may hold a secret
        at = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{type(error).__name__} at {Path(at.filename).name}:{at.lineno}"
        return Looked(troubles=(f"{type(duty).__name__}: a defect of ours ({place}): tell us",))
