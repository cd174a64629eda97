"""One run: the schedule of a seed on a laboratory, until rest; its history in a folder."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.acts import Workload, draw_workload
from tests.chaos.api_calls import ApiCalls
from tests.chaos.audit_policy import read_events
from tests.chaos.charge_log import ChargeLog
from tests.chaos.end_state import collect_end, read_logs, read_transitions
from tests.chaos.forms import SHORT, Form
from tests.chaos.history import End, History, Plan, write_history
from tests.chaos.lab import Lab
from tests.chaos.nemesis import Nemesis
from tests.chaos.outcome_reports import OutcomeReporter
from tests.chaos.parts import Supervisor
from tests.chaos.policies import build_policies, hash_policy
from tests.chaos.pulse import Pulse
from tests.chaos.record import Record
from tests.chaos.recorders import Recorders
from tests.chaos.rest import wait_for_rest
from tests.chaos.schedule import draw_schedule
from tests.chaos.workload import WorkloadRun

SETTLE_SECONDS, REST_SECONDS = 120.0, 300.0
"""Bounds of the time after the last fault: until all wishes are accepted, and then until all is at rest."""


@dataclass(frozen=True)
class Drawn:
    """What the seed alone decides in a form."""

    seed: int
    seconds: float
    form: Form = SHORT
    policies: Sequence[str] = field(default_factory=build_policies)

    def build_plan(self) -> Plan:
        return Plan(
            seed=self.seed,
            seconds=self.seconds,
            parts=self.form.parts,
            policies={hash_policy(text): text for text in self.policies},
            schedule=draw_schedule(self.seed, self.seconds, self.form.parts, self.form.links, self.form.kinds),
        )

    def draw_workload(self) -> Workload:
        return draw_workload(self.seed, self.seconds, len(self.policies))


@dataclass
class Run:
    """A run, and what it leaves: `history`, also in `folder`, and `errors` of the harness itself."""

    drawn: Drawn
    scratch: Path
    folder: Path
    tell: Callable[[str], None] = lambda _: None
    errors: list[str] = field(default_factory=list)

    def do(self) -> History:
        self.tell("starting all parts")
        with Lab(self.scratch, self.drawn.policies[0], self.drawn.form) as lab:
            return self._run(lab)

    def _run(self, lab: Lab) -> History:
        plan, record = self.drawn.build_plan(), Record()
        calls = ApiCalls(lab.plane.api, record)
        end: End | None = None
        plan = _date(plan, lab)
        try:
            with ExitStack() as stack:
                recorders = stack.enter_context(Recorders(lab, record))
                for name, server in zip(lab.form.stores, lab.redis.servers, strict=True):
                    stack.enter_context(ChargeLog(name, server, record))
                    if lab.form.is_cluster:
                        stack.enter_context(Pulse(name, server, record))
                supervisor = Supervisor(lab.parts, lambda part, what: record.add_exit(part.name, what))
                supervisor.start()
                stack.callback(supervisor.stop)
                end = self._disturb(lab, calls, plan, record)
                recorders.catch_up()
        finally:
            history = self._collect(lab, plan, record, end)
        return history

    def _disturb(self, lab: Lab, calls: ApiCalls, plan: Plan, record: Record) -> End:
        """Do the schedule and the workload; then wait for rest."""
        workload = self.drawn.draw_workload()
        running = WorkloadRun(calls, OutcomeReporter(lab, record), self.drawn.policies)
        nemesis = Nemesis(lab, record)
        began = time.monotonic()
        thread = threading.Thread(target=running.run, args=(workload.acts, began), name="workload", daemon=True)
        thread.start()
        self.tell(f"{len(plan.schedule)} faults and {len(workload.acts)} acts in {plan.seconds:g} s")
        nemesis.run(plan.schedule, began)
        thread.join()
        self.errors += nemesis.errors
        self.tell("the last fault has ended: waiting for rest")
        lab.parts["kwok"].restart()  # its watch may have ended without a word, and it is no part that is judged
        self.errors += [f"not accepted: {text}" for text in running.settle(workload, SETTLE_SECONDS)]
        found, waited = wait_for_rest(lab, calls, workload, self.drawn.policies[0], running.touch, REST_SECONDS)
        self.tell(f"at rest after {waited:.0f} s" if not found.missing else f"no rest after {waited:.0f} s")
        return collect_end(lab, calls, found, waited, plan.seed)

    def _collect(self, lab: Lab, plan: Plan, record: Record, end: End | None) -> History:
        logs = read_logs(lab)
        history = History(
            plan=plan,
            faults=record.faults,
            acts=record.acts,
            audit=read_events(lab.plane.audit_folder, lab.plane.api_servers),
            reviews=sorted(record.reviews.values(), key=lambda review: review.at),
            charges=sorted(record.charges, key=lambda write: write.seen_at),
            redis=record.redis,
            statuses=record.statuses,
            transitions=read_transitions(logs),
            end=end,
            logs=logs,
        )
        write_history(history, self.folder)
        return history


def _date(plan: Plan, lab: Lab) -> Plan:
    return Plan(
        seed=plan.seed,
        seconds=plan.seconds,
        parts=plan.parts,
        policies=plan.policies,
        schedule=plan.schedule,
        began_at=time.time(),
        details=lab.describe_details(),
    )
