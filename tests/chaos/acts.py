"""The acts of a workload, drawn from the seed alone before the run, and the sizes of its objects in the end."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.chaos.policies import build_namespace
from tests.cluster.kwok import NODES

_PAUSE_SECONDS = (0.3, 1.5)
LAST_SECONDS = 5.0
"""Before the end of the faults no more Jobs are created: others end as they are."""


@dataclass(frozen=True)
class Kept:
    """A workload that lasts: its size varies between these bounds."""

    kind: str
    service: str
    name: str
    least: int
    most: int

    @property
    def namespace(self) -> str:
        return build_namespace(self.service)


KEPT: Sequence[Kept] = (
    Kept("Deployment", "shop", "cart", 1, 5),
    Kept("Deployment", "shop", "search", 1, 4),
    Kept("StatefulSet", "store", "ledger", 1, 5),
    Kept("Deployment", "store", "cache", 1, 4),
    Kept("Deployment", "spot", "render", 2, 10),
    Kept("Deployment", "risky", "beta", 1, 4),
    Kept("Deployment", "open", "page", 1, 4),
    Kept("Deployment", "near", "proxy", 1, 5),
)


@dataclass(frozen=True)
class PlannedAct:
    """One act. `after` is seconds since the begin of the run."""

    after: float
    act: str
    kind: str = ""
    namespace: str = ""
    name: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Workload:
    acts: Sequence[PlannedAct]
    sizes: Mapping[tuple[str, str, str], int]
    """Replicas of what is kept, by kind, namespace and name, after all acts."""
    jobs: Sequence[tuple[str, str]]
    """Namespace and name of each Job."""


def draw_workload(seed: int, seconds: float, policies: int) -> Workload:
    """Draw acts within so many seconds. `policies` is how many there are."""
    random = Random(f"{seed} acts")  # noqa: S311  the same acts again
    drawing = _Drawing(random, policies)
    acts = [drawing.create(kept) for kept in KEPT]
    after = 1.0
    while after < seconds:
        acts.append(drawing.draw(round(after, 2), is_late=after > seconds - LAST_SECONDS))
        after += random.uniform(*_PAUSE_SECONDS)
    return Workload(acts, drawing.sizes, drawing.jobs)


@dataclass
class _Drawing:
    random: Random
    policies: int
    sizes: dict[tuple[str, str, str], int] = field(default_factory=dict)
    jobs: list[tuple[str, str]] = field(default_factory=list)

    def create(self, kept: Kept) -> PlannedAct:
        size = self.random.randint(kept.least, kept.most)
        self.sizes[kept.kind, kept.namespace, kept.name] = size
        return PlannedAct(0.0, "create", kept.kind, kept.namespace, kept.name, {"replicas": size})

    def draw(self, after: float, *, is_late: bool) -> PlannedAct:
        choices: dict[Callable[[float], PlannedAct], int] = {
            self._scale: 20,
            self._roll_out: 8,
            self._delete_pod: 14,
            self._evict_pod: 8,
            self._create_job: 0 if is_late else 22,
            self._resize: 8,
            self._drain: 3,
            self._report: 16,
            self._override: 5,
            self._change_policy: 4,
        }
        [chosen] = self.random.choices(list(choices), list(choices.values()))
        return chosen(after)

    def _choose(self, *kinds: str) -> Kept:
        return self.random.choice([kept for kept in KEPT if not kinds or kept.kind in kinds])

    def _scale(self, after: float) -> PlannedAct:
        kept = self._choose()
        size = self.random.randint(kept.least, kept.most)
        self.sizes[kept.kind, kept.namespace, kept.name] = size
        return PlannedAct(after, "scale", kept.kind, kept.namespace, kept.name, {"replicas": size})

    def _roll_out(self, after: float) -> PlannedAct:
        kept = self._choose()
        return PlannedAct(after, "roll-out", kept.kind, kept.namespace, kept.name, {"revision": f"{after:g}"})

    def _delete_pod(self, after: float) -> PlannedAct:
        return self._act_on_pod(after, "delete-pod", self._choose())

    def _evict_pod(self, after: float) -> PlannedAct:
        return self._act_on_pod(after, "evict-pod", self._choose())

    def _resize(self, after: float) -> PlannedAct:
        kept = self.random.choice([kept for kept in KEPT if kept.service in {"store", "shop"}])
        cpu = self.random.choice(["50m", "100m", "200m", "400m"])
        return self._act_on_pod(after, "resize-pod", kept, cpu=cpu)

    def _act_on_pod(self, after: float, act: str, kept: Kept, **details: Any) -> PlannedAct:
        """`place` chooses one of the Pods that are there then."""
        chosen = {"app": kept.name, "place": self.random.random(), **details}
        return PlannedAct(after, act, "Pod", kept.namespace, "", chosen)

    def _create_job(self, after: float) -> PlannedAct:
        service = self.random.choice(["jobs", "gold", "bronze"])
        namespace, name = build_namespace(service), f"job-{len(self.jobs) + 1}"
        self.jobs.append((namespace, name))
        details = {"pods": self.random.randint(1, 6), "indexed": self.random.random() < 0.5}
        return PlannedAct(after, "create", "Job", namespace, name, details)

    def _drain(self, after: float) -> PlannedAct:
        """Cordon a Node, evict its Pods, and let it be used again."""
        name = self.random.choice(NODES)["metadata"]["name"]
        return PlannedAct(after, "drain", "Node", "", name, {"seconds": round(self.random.uniform(2, 6), 2)})

    def _report(self, after: float) -> PlannedAct:
        """Report outcomes: mostly good ones, or some seconds of failures that trip a breaker."""
        bad = self.random.random() < 0.35
        details = {"times": 12 if bad else 4, "failures": 8 if bad else 0, "successes": 2 if bad else 10}
        return PlannedAct(after, "report", "Outcome", "", "risky", details)

    def _override(self, after: float) -> PlannedAct:
        service, entry = self.random.choice(
            [("shop", {"quotaFactor": 2}), ("risky", {"breaker": "ForcedOpen"}), ("risky", {"breaker": "ForcedClosed"})]
        )
        seconds = self.random.randint(3, 12)
        return PlannedAct(after, "override", "Override", "", service, {"entry": entry, "seconds": seconds})

    def _change_policy(self, after: float) -> PlannedAct:
        number = self.random.randrange(self.policies)
        return PlannedAct(after, "change-policy", "ConfigMap", "podgate-system", "podgate-policy", {"number": number})
