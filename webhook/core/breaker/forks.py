"""Conflict resolution between divergent states of one breaker. Why: docs/design/breaker-forks.md.

Generations order the transitions of one lineage only. A replica that is cut off from the store continues from the
store's last decision that it knows, its fork point. Transitions caused by time alone are not decisions.

1. If the store decided anything after the fork point, the store's state wins. Other replicas share it.
2. If it decided nothing, the replica's state continues that lineage and wins.
3. If two replicas continued alone from the same fork point, the more restrictive state wins.
4. A trip wins over a state that predates it, a manual reset over any earlier trip, and a forced state in the store
   over any decision of a replica alone.

The same rules restore what a store has lost; there the newer decision of the lineage wins. The resulting generation is
above both, so that outcomes of the discarded branch match no later generation.
"""

from msgspec.structs import replace

from webhook.core.breaker.plans import BreakerPlan
from webhook.core.breaker.record import SHUT, Record, from_view
from webhook.core.breaker.states import BreakerView, State


def is_winning(view: BreakerView, record: Record) -> bool:
    """Whether a proposed view wins over a record that was advanced to now."""
    if view.state.is_tripped and view.since_us < record.reset_us:
        return False
    knows_trip = not record.state.is_tripped or view.tripped_at_us >= record.tripped_at_us or view.state.is_forced
    if view.alone:
        fork = view.decided - view.alone
        if record.state.is_forced:
            return False
        if record.decided == fork:
            return knows_trip
        if record.alone and record.decided - record.alone == fork:
            mine = SHUT[view.state], view.tripped_at_us, view.since_us
            return mine > (SHUT[record.state], record.tripped_at_us, record.since_us)
        if record.decided > fork:
            return False
    mine = view.decided, view.generation, SHUT[view.state]
    return knows_trip and mine > (record.decided, record.generation, SHUT[record.state])


def apply_proposal(record: Record, plan: BreakerPlan, view: BreakerView, due: Record | None = None) -> Record:
    """Take a proposed view if it wins over `due`, the advanced record. The order of proposals does not matter."""
    due = due or record
    if is_winning(view, due):
        behind = max(0, due.generation + 1 - view.decided if view.alone else due.generation - view.generation)
        taken = from_view(record.service, plan, view)
        return replace(
            taken,
            generation=view.generation + behind,
            alone=view.alone and view.alone + behind,
            reset_us=record.reset_us,
            asked_us=record.asked_us,
            excused=record.excused,
        )
    is_another = view.alone and view.generation == due.generation and _identify(view) != _identify(due)
    if view.generation <= due.generation and not is_another:
        return record
    generation = view.generation + 1
    return replace(record, generation=generation, passed=generation - record.decided)


def _identify(account: BreakerView | Record) -> tuple[State, int, int]:
    return account.state, account.since_us, account.alone
