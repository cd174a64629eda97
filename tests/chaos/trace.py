"""The trace of one object through a history: everything that was recorded of it between the faults, by time."""

from collections.abc import Iterator
from typing import NamedTuple

from tests.chaos.history import ChargeWrite, Fault, History

_TEXT_MAX = 140


class TraceLine(NamedTuple):
    """`at` is in seconds since the Unix epoch, by the clock of `source`."""

    at: float
    source: str
    text: str


class Meant(NamedTuple):
    """The objects that are meant: their uids or names begin with `words`, or they have one of the names."""

    words: str
    names: frozenset[str]

    def has(self, uid: str, name: str) -> bool:
        return name in self.names or name.startswith(self.words) or (bool(uid) and uid.startswith(self.words))


def trace(history: History, words: str) -> Iterator[str]:
    """Yield lines about the Pods and other objects whose uid or name begins with `words`, with all faults."""
    began = history.plan.began_at
    names = {write.place.rpartition("/")[2] for write in history.charges if write.uid.startswith(words)}
    names |= {review.name for review in history.reviews if review.uid.startswith(words)}
    meant = Meant(words, frozenset(names))
    faults = (TraceLine(fault.at, "FAULT", _format_fault(fault)) for fault in history.faults)
    for line in sorted((*faults, *_list_requests(history, meant), *_list_decisions(history, meant))):
        yield f"{line.at - began:9.3f}  {line.source:<24} {line.text}"


def _list_requests(history: History, meant: Meant) -> Iterator[TraceLine]:
    for act in history.acts:
        if meant.has("", act.name):
            text = f"{act.act} {act.kind} {act.namespace}/{act.name}: {act.outcome} {act.code} {act.message}"
            yield TraceLine(act.at, "act", text[:_TEXT_MAX])
    for event in history.audit:
        if meant.has("", event.name):
            verb = f"{event.verb} {event.resource}/{event.sub_resource}".rstrip("/")
            text = f"{verb} {event.namespace}/{event.name} by {event.user}: {event.code} {event.message}"
            yield TraceLine(event.at, event.part, text[:_TEXT_MAX])


def _list_decisions(history: History, meant: Meant) -> Iterator[TraceLine]:
    for review in history.reviews:
        if meant.has(review.uid, review.name):
            verb = f"{review.half} {review.operation} {review.sub_resource}".rstrip()
            text = f"{verb} {review.name}: {review.decision} {review.message}"
            yield TraceLine(review.at, f"review of {review.replica}", text[:_TEXT_MAX])
    for write in history.charges:
        if write.role == "master" and meant.has(write.uid, write.place.rpartition("/")[2]):
            yield TraceLine(
                write.seen_at or write.at_us / 1e6, f"{write.part} for {write.client}", _format_charge(write, history)
            )


def _format_fault(fault: Fault) -> str:
    details = " ".join(f"{name}={value}" for name, value in fault.details.items())
    return f"{fault.number or '-'} {fault.kind} {'>'.join(fault.parts)} {fault.phase} {details}"[:_TEXT_MAX].rstrip()


def _format_charge(write: ChargeWrite, history: History) -> str:
    verb = "refunded" if write.refunded else "charged"
    at = write.charged_us / 1e6 - history.plan.began_at
    return f"{verb} {write.place} of {write.service or write.tag} as of {at:.3f}: {write.cost}"[:_TEXT_MAX]
