"""Two accounts of one breaker that do not know of each other, and which of them holds.

The generation orders the moves of one lineage only. A replica that is cut off from the store goes on from the last
decision that it knew of there, its fork. Beside that decision and whatever time alone brought about since:

1. Where the store decided anything after the fork, the store holds. Others share it.
2. Where it decided nothing, the replica's account goes on from there, and holds.
3. Of two replicas that both went on alone from one fork, the more shut holds: neither knew of the other.
4. A trip holds over an account that does not know it, a reset by hand over what was before it, and a forced state in
   the store over what a replica did alone.

What a store has lost is told to it again by the same rules; there the newer decision of the lineage holds. The number
afterwards is above both: an outcome of the branch that was given up is of no generation that is still to come.
"""

from msgspec.structs import replace

from webhook.core.breaker.plans import BreakerPlan
from webhook.core.breaker.record import SHUT, Record, from_view
from webhook.core.breaker.states import BreakerView, State


def holds(view: BreakerView, record: Record) -> bool:
    """Whether an account holds over a record that time has been passed in."""
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


def propose(record: Record, plan: BreakerPlan, view: BreakerView, due: Record | None = None) -> Record:
    """Take an account if it holds over the record as it is `due`; in whatever order they come, one state remains."""
    due = due or record
    if holds(view, due):
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
    is_another = view.alone and view.generation == due.generation and _identity(view) != _identity(due)
    if view.generation <= due.generation and not is_another:
        return record
    generation = view.generation + 1
    return replace(record, generation=generation, passed=generation - record.decided)


def _identity(account: BreakerView | Record) -> tuple[State, int, int]:
    return account.state, account.since_us, account.alone
