"""Backoff of Pods that were not released or deleted: others take their turn before they wait again."""

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from webhook.controller.release.gated_groups import find_key
from webhook.controller.release.gated_pods import GatedPod


class PodBackoff:
    """Pods that are set aside, in no queue. They wait again as old as they are, and as they are by then.

    Members of a group are set aside together, and wait again together: a part of them would wait for the others.
    """

    def __init__(self, on_waiting: Callable[[GatedPod], None]) -> None:
        """`on_waiting` is called with each Pod that waits again."""
        self._on_waiting = on_waiting
        self._aside: dict[str, tuple[GatedPod, int]] = {}
        """With the moment until which they are set aside."""
        self._wholes: dict[str, set[str]] = {}
        """Their uids by what waits again as a whole."""
        self._returning: set[str] = set()
        """Pods that are set aside, and wait again before the next release."""
        self._newer: dict[str, GatedPod] = {}
        """Pods that have changed since their removal began."""
        self._is_turn_of_others = False

    def __contains__(self, uid: str) -> bool:
        return uid in self._aside

    def add(self, pod: GatedPod, until_us: int) -> None:
        uid = pod.waiting.uid
        self._drop(uid)
        self._aside[uid] = pod, until_us
        self._wholes.setdefault(_find_whole(pod), set()).add(uid)

    def update_pod(self, pod: GatedPod) -> None:
        """Replace a Pod that has changed, also before it is set aside. It is tried again: the cause may be gone."""
        uid = pod.waiting.uid
        self._newer[uid] = pod
        if uid in self._aside and self._aside[uid][1]:
            for one in self._wholes[_find_whole(self._aside[uid][0])]:
                self._aside[one] = self._aside[one][0], 0

    def forget(self, uid: str) -> None:
        """Forget a Pod that no longer waits."""
        self._drop(uid)
        self._newer.pop(uid, None)

    def note_released(self, service: str) -> None:
        """Note that a Pod was released that had been refused: the cause may be gone for others of its service."""
        self.return_soon([uid for uid, (pod, _) in self._aside.items() if pod.waiting.service == service])

    def return_soon(self, uids: Iterable[str]) -> None:
        """Let Pods that are set aside wait again before the next release."""
        self._returning.update(uid for uid in uids if uid in self._aside)

    def return_to_queue(self) -> None:
        """Let Pods wait again whose cause may be gone. A removal that ends must not: the loop may be charging Pods."""
        returning, self._returning = self._returning, set()
        for uid in sorted(returning & self._aside.keys(), key=lambda uid: self._aside[uid][1]):
            self._wait_again(uid)

    def return_due(self, now_us: int, slow: AbstractSet[str]) -> None:
        """Let Pods wait again. Every second Pod of a slow service that is tried was not tried before."""
        self._is_turn_of_others = not self._is_turn_of_others
        returned: dict[str, str] = dict.fromkeys(slow, "") if self._is_turn_of_others else {}
        """What returns of each slow service."""
        for uid, (pod, until_us) in sorted(self._aside.items(), key=lambda item: item[1][1]):
            service = pod.waiting.service
            if until_us > now_us:
                break
            if service not in slow or returned.setdefault(service, _find_whole(pod)) == _find_whole(pod):
                self._wait_again(uid)

    def _wait_again(self, uid: str) -> None:
        pod, _ = self._aside[uid]
        self._drop(uid)
        newer = self._newer.pop(uid, pod)
        self._on_waiting(replace(newer, waiting=replace(newer.waiting, since_us=pod.waiting.since_us)))

    def _drop(self, uid: str) -> None:
        """Drop a Pod that is set aside, if it is."""
        if uid not in self._aside:
            return
        pod, _ = self._aside.pop(uid)
        whole = _find_whole(pod)
        self._wholes[whole].discard(uid)
        if not self._wholes[whole]:
            del self._wholes[whole]


def _find_whole(pod: GatedPod) -> str:
    """Return what stands for all that waits again with a Pod: its group, or its uid."""
    key = find_key(pod)
    return pod.waiting.uid if key is None else key.uid
