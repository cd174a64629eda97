"""Release sequence: all waiting Pods of a queue, in the order in which they are released while nothing changes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest

from msgspec import Struct

from webhook.core.controller.waiting_pod import Member, WaitingPod


class QueuedPod(Struct, frozen=True, gc=False):
    """A waiting Pod in the sequence. `is_lifted`: ageing has brought it into the share of a higher class."""

    pod: WaitingPod
    is_lifted: bool


class _LiftedPod(Struct, frozen=True, order=True, gc=False):
    """A Pod of a lower class, by when it was lifted."""

    lifted_us: int
    uid: str
    pod: WaitingPod


def compute_release_sequence(
    members: Mapping[str, Member],
    turns: Mapping[int, Sequence[str]],
    natives: Mapping[int, int],
    pods: Iterable[WaitingPod],
    now_us: int,
) -> list[QueuedPod]:
    """Return the Pods in the order of `ReleaseOrder.take`, if each of them fits; those of paused services are last.

    `turns` has the services of each class in turn, `natives` how many of its own Pods a class has released since the
    last lifted one. It sorts once.
    """
    own: dict[str, list[WaitingPod]] = {name: [] for name in members}
    lifted: dict[int, list[_LiftedPod]] = {rank: [] for rank in turns}
    paused: list[WaitingPod] = []
    above = {name: [rank for rank in turns if rank < member.rank] for name, member in members.items()}
    for pod in pods:
        member = members[pod.service]
        if member.is_paused:
            paused.append(pod)
            continue
        own[pod.service].append(pod)
        ranks = above[pod.service]
        steps = min(len(ranks), (now_us - pod.since_us) // member.ageing_us)
        if steps > 0:
            lifted[ranks[-steps]].append(_LiftedPod(pod.since_us + steps * member.ageing_us, pod.uid, pod))
    found: list[QueuedPod] = []
    done: set[str] = set()
    for rank, services in turns.items():
        lanes = [
            sorted((pod for pod in own[name] if pod.uid not in done), key=lambda pod: pod.order_key)
            for name in services
        ]
        of_class = list(_merge(lanes, sorted(lifted[rank]), members, natives[rank]))
        done.update(queued.pod.uid for queued in of_class)
        found += of_class
    paused.sort(key=lambda pod: (members[pod.service].rank, pod.order_key))
    return [*found, *(QueuedPod(pod, is_lifted=False) for pod in paused)]


def _merge(
    lanes: Sequence[Sequence[WaitingPod]], lifted: Sequence[_LiftedPod], members: Mapping[str, Member], natives: int
) -> Iterator[QueuedPod]:
    """Yield a class's own Pods, of its services in turn, with the lifted ones between and after them."""
    others = iter(lifted)
    other = next(others, None)
    for pod in (pod for turn in zip_longest(*lanes) for pod in turn if pod is not None):
        while other is not None and natives >= members[other.pod.service].natives_per_lifted:
            yield QueuedPod(other.pod, is_lifted=True)
            other, natives = next(others, None), 0
        yield QueuedPod(pod, is_lifted=False)
        natives += 1
    while other is not None:
        yield QueuedPod(other.pod, is_lifted=True)
        other = next(others, None)
