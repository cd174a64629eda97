"""The history of one run: what was done to the parts, what was asked of them, what they answered and said.

A history is a folder. Every time is in seconds since the Unix epoch by the harness's clock, unless a field says
otherwise; parts have the names of `plan.json`. A file that a run could not write is missing, and reads as empty.

| file | lines of | what it is |
|---|---|---|
| `plan.json` | `Plan` | seed, policies, parts and the schedule, all drawn before the run |
| `faults.jsonl` | `Fault` | what the nemesis did: a line as it begins, another one as it has ended |
| `acts.jsonl` | `Act` | what the workload asked of the API server, and the answer, in the order of the answers |
| `audit.jsonl` | `AuditEvent` | the audit logs of all API servers, by arrival: the truth about objects |
| `reviews.jsonl` | `Review` | the decision records of all servers, each once, in the order of their time |
| `charges.jsonl` | `ChargeWrite` | each write of a Pod's record in Redis, by MONITOR: the truth about counters |
| `redis.jsonl` | `RedisSnapshot` | each second: role and memory of each Redis, and its charged Pods |
| `statuses.jsonl` | `Status` | each second: `GET /status` of each server and controller that answers |
| `transitions.jsonl` | `Transition` | moves of breakers as each part logged them |
| `end.json` | `End` | the state at rest, after the last fault has ended |
| `logs/PART.log` | text | the whole log of each part; Podgate's parts write a JSON object a line |

How they belong together: an `AuditEvent` of a Pod's CREATE has the Pod that was stored as `response`, with its uid. A
`Review` of the validating half has the same `uid`, and so have `ChargeWrite` and `RedisSnapshot.charges`. The mutating
half of a CREATE has no uid yet: its namespace, `name` (or generateName) and `owner_uid` tell it. A killed server
may have lost its last second of reviews: `AuditEvent.annotations` (keys such as `NAME-OF-WEBHOOK/decision`) still tell
what it answered.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

T = TypeVar("T")

BEGAN, ENDED, FAILED = "began", "ended", "failed"
"""Values of `Fault.phase`. A fault that failed is over, and may have had some effect: a part was down already."""
EXITED, NOT_RECORDED, SLOW_NODE = "exited", "not-recorded", "slow-node"
"""Values of `Fault.kind` that nobody planned."""
FOUND = "found"
"""The key in `Fault.details` of the part that a fault found to hit: of a primary, of a leader."""
TAG = "tag"
"""The key in `Fault.details` of the tag whose slot of a Cluster a fault moves."""
DONE, REFUSED, UNKNOWN = "done", "refused", "unknown"
"""Values of `Act.outcome`. Unknown: no answer arrived, so that it may have happened or not, or may still happen."""


class PlannedFault(Struct, frozen=True):
    """One fault of the schedule. `after` and `until` are seconds since the begin of the run."""

    number: int
    kind: str
    parts: tuple[str, ...]
    """The part, or the two ends of a link: the first one opens the connections."""
    after: float
    until: float
    """The same as `after` if it has no duration, as FLUSHALL has none."""
    details: Mapping[str, Any] = {}


class Plan(Struct, frozen=True):
    seed: int
    seconds: float
    """For how long faults begin."""
    parts: Mapping[str, str]
    """The kind of each part by name: `server`, `controller`, `extender`, `redis`, `sentinel`, `kube-apiserver`, ..."""
    policies: Mapping[str, str]
    """Documents by hash, of all that the workload may apply."""
    schedule: Sequence[PlannedFault]
    began_at: float = 0.0
    """When `after` is 0."""
    details: Mapping[str, Any] = {}
    """Intervals and deadlines of the parts that differ from their defaults, and versions."""


class Fault(Struct, frozen=True):
    """What the nemesis did. The two lines of one fault have the same number.

    Number 0 is what nobody planned, of three kinds. `exited`: a part has ended by itself, and was started again.
    `not-recorded`: between its two lines `charges.jsonl` may lack writes of that Redis, which was down at first.
    `slow-node`: between its two lines that node of a Cluster left a PING without an answer for half a second.
    """

    at: float
    number: int
    kind: str
    parts: tuple[str, ...]
    phase: str
    details: Mapping[str, Any] = {}
    """Of the schedule, and what was found: the `error` if it failed, and FOUND."""


class Act(Struct, frozen=True):
    """One request of the workload."""

    at: float
    """When it was asked."""
    answered_at: float
    act: str
    """create, scale, roll out, resize, evict, delete, change policy, override, outcome, ..."""
    kind: str
    namespace: str
    name: str
    outcome: str
    code: int = 0
    """The HTTP status; 0 without an answer."""
    message: str = ""
    details: Mapping[str, Any] = {}


class AuditEvent(Struct, frozen=True):
    """One request at the stage ResponseComplete or Panic."""

    at: float
    """When the API server received it, by its clock."""
    answered_at: float
    part: str
    audit_id: str
    verb: str
    user: str
    resource: str
    sub_resource: str
    namespace: str
    name: str
    code: int
    message: str = ""
    """Of the status, if it is no success."""
    reason: str = ""
    uri: str = ""
    user_agent: str = ""
    stage: str = "ResponseComplete"
    annotations: Mapping[str, str] = {}
    request: Any = None
    response: Any = None
    """The object as it was answered, without managedFields. None if the policy leaves it out, as for Leases."""

    @property
    def is_dry_run(self) -> bool:
        return "dryRun=All" in self.uri


class Review(Struct, frozen=True):
    """A decision record, as the decision port of a server has shown it."""

    at: float
    """By the clock of the server."""
    part: str
    """The server that the record was read from first; `replica` made the decision."""
    replica: str
    id: str
    half: str
    operation: str
    sub_resource: str
    namespace: str
    name: str
    uid: str
    user: str
    service: str
    decision: str
    """A `Verdict`."""
    code: int
    reason: str
    message: str
    policy: str
    is_dry_run: bool
    uncounted: bool
    owner_uid: str
    breaker_state: str
    breaker_generation: int
    record: Mapping[str, Any]
    """The whole record as JSON."""
    seen_at: float = 0.0
    """When it was first read, by the harness's clock, mostly within two seconds: `at` is off while a clock is."""


class ChargeWrite(Struct, frozen=True):
    """One write of a Pod's record by the script. `..._us` are Redis' own times, in microseconds since the Unix epoch.

    They jump while its clock is stepped, and `charges.jsonl` is in the order of `seen_at`.
    """

    at_us: int
    part: str
    """The Redis. A replica shows the writes of its primary, too: see `role`."""
    role: str
    key: str
    tag: str
    uid: str
    client: str
    """The port of the client whose EVAL wrote it; "" on a replica."""
    charged_us: int
    generation: int
    probe: bool
    refunded: bool
    service: str
    cost: Any
    high: Any
    windows: Any
    source: str
    place: str
    """NAMESPACE/NAME of the Pod."""
    seen_at: float = 0.0
    """When it was read, by the harness's clock, in seconds: within milliseconds, unless Redis was paused."""


class RedisSnapshot(Struct, frozen=True):
    at: float
    part: str
    run_id: str
    role: str
    memory_bytes: int
    keys: int
    charges: Mapping[str, Mapping[str, int]]
    """When each Pod was charged, by tag and uid: microseconds of Redis' clock; without refunded ones."""


class Status(Struct, frozen=True):
    at: float
    part: str
    document: Mapping[str, Any]


class Transition(Struct, frozen=True):
    """A move of a breaker in the log of one part. `message` tells moves from held trips and expired probes."""

    at: float
    """By the clock of the part."""
    part: str
    message: str
    service: str
    variant: str
    old: str
    new: str
    reason: str
    generation: int


class End(Struct, frozen=True):
    """What was there at rest. Documents are as their API answered."""

    at: float
    rested: bool
    """Whether everything came to rest within the bound; if not, `missing` says what did not."""
    waited_seconds: float
    missing: Sequence[str]
    workloads: Sequence[Mapping[str, Any]]
    """Deployments, StatefulSets, ReplicaSets and Jobs."""
    pods: Sequence[Mapping[str, Any]]
    statuses: Mapping[str, Mapping[str, Any]]
    """`GET /status` by part."""
    metrics: Mapping[str, str]
    """The text of `GET /metrics` by part."""
    queue: Mapping[str, Any] | None
    """`podgate queue -o json` of the leader."""
    explanations: Mapping[str, Mapping[str, Any]]
    """`podgate explain -o json` of a sample, by KIND/NAMESPACE/NAME."""
    service_statuses: Sequence[Mapping[str, Any]]
    events: Sequence[Mapping[str, Any]]
    leases: Sequence[Mapping[str, Any]]


class History(Struct, frozen=True):
    """All of it. `logs` are texts by part."""

    plan: Plan
    faults: Sequence[Fault] = ()
    acts: Sequence[Act] = ()
    audit: Sequence[AuditEvent] = ()
    reviews: Sequence[Review] = ()
    charges: Sequence[ChargeWrite] = ()
    redis: Sequence[RedisSnapshot] = ()
    statuses: Sequence[Status] = ()
    transitions: Sequence[Transition] = ()
    end: End | None = None
    logs: Mapping[str, str] = {}


LINES: Mapping[str, type[Struct]] = {
    "faults": Fault,
    "acts": Act,
    "audit": AuditEvent,
    "reviews": Review,
    "charges": ChargeWrite,
    "redis": RedisSnapshot,
    "statuses": Status,
    "transitions": Transition,
}
"""The type of the lines of FIELD.jsonl, which are the field of a `History`."""
_PLAN, _END, _LOGS = "plan.json", "end.json", "logs"


def write_history(history: History, folder: Path) -> None:
    """Write a history into a folder, which may have one: its files are replaced."""
    (folder / _LOGS).mkdir(parents=True, exist_ok=True)
    (folder / _PLAN).write_bytes(_format_document(history.plan))
    for name in LINES:
        write_lines(folder / f"{name}.jsonl", getattr(history, name))
    if history.end is not None:
        (folder / _END).write_bytes(_format_document(history.end))
    for part, text in history.logs.items():
        (folder / _LOGS / f"{part}.log").write_text(text)


def read_history(folder: Path) -> History:
    """Read a history. ValueError: a line or document does not have its shape."""
    lines: dict[str, Any] = {name: read_lines(folder / f"{name}.jsonl", kind) for name, kind in LINES.items()}
    end = folder / _END
    return History(
        plan=msgspec.json.decode((folder / _PLAN).read_bytes(), type=Plan),
        **lines,
        end=msgspec.json.decode(end.read_bytes(), type=End) if end.exists() else None,
        logs={path.stem: path.read_text(errors="replace") for path in sorted((folder / _LOGS).glob("*.log"))},
    )


def write_lines(path: Path, lines: Iterable[Struct]) -> None:
    with path.open("wb") as file:
        file.writelines(msgspec.json.encode(line) + b"\n" for line in lines)


def read_lines(path: Path, kind: type[T]) -> tuple[T, ...]:
    if not path.exists():
        return ()
    decoder = msgspec.json.Decoder(kind)
    with path.open("rb") as file:
        return tuple(decoder.decode(line) for line in file if line.strip())


def _format_document(document: Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document), indent=1)
