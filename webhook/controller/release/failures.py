"""Release failures: the API server's last answer about each waiting Pod whose gate it did not remove."""

from collections.abc import Collection

from msgspec import Struct
from msgspec.structs import replace

from webhook.controller.release.gated_pods import GatedPod
from webhook.errors import GateError

PAUSE_US = 5_000_000
"""How long others take their turn before a Pod that was not released is tried again."""
_PAUSE_US_MAX = 60_000_000


class ReleaseFailure(Struct, frozen=True, gc=False):
    """The last of the attempts to release a Pod, or to delete it when it had expired, since the first that failed."""

    pod: GatedPod
    since_us: int
    at_us: int
    refusals: int
    reason: str
    """As `GateError.reason`."""
    said: str

    @property
    def pause_us(self) -> int:
        """Return how long others take their turn: twice as long after each further refusal."""
        return min(PAUSE_US << min(max(0, self.refusals - 1), 8), _PAUSE_US_MAX)


class ReleaseFailures:
    """Failures by uid, until the Pod is released or gone."""

    def __init__(self) -> None:
        self._by_uid: dict[str, ReleaseFailure] = {}

    def note(self, pod: GatedPod, now_us: int, error: GateError) -> ReleaseFailure:
        """Note a failed attempt."""
        uid = pod.waiting.uid
        known = self._by_uid.get(uid)
        since_us, refusals = (known.since_us, known.refusals) if known is not None else (now_us, 0)
        refusals += error.is_refused
        found = self._by_uid[uid] = ReleaseFailure(pod, since_us, now_us, refusals, error.reason, error.answer)
        return found

    def update_pod(self, pod: GatedPod) -> None:
        """Replace a Pod that has changed. It is tried again: the cause may be gone."""
        if (known := self._by_uid.get(pod.waiting.uid)) is not None:
            self._by_uid[pod.waiting.uid] = replace(known, pod=pod, at_us=0)

    def forget(self, uid: str) -> bool:
        """Forget a Pod; return whether it had failed."""
        return self._by_uid.pop(uid, None) is not None

    def get(self, uid: str) -> ReleaseFailure | None:
        return self._by_uid.get(uid)

    def find_pause_us(self, uid: str) -> int:
        """Return how long others take their turn before a Pod is tried again."""
        known = self._by_uid.get(uid)
        return PAUSE_US if known is None else known.pause_us

    def is_pausing(self, uid: str, now_us: int) -> bool:
        """Return whether a Pod was refused, and it is too early to try it again."""
        known = self._by_uid.get(uid)
        return known is not None and known.refusals > 0 and 0 <= now_us - known.at_us < known.pause_us

    def list_failures(self) -> Collection[ReleaseFailure]:
        return self._by_uid.values()
