"""Gates: gone in the end, removed only from Pods that were charged, and of a group all or none."""

from collections import defaultdict
from collections.abc import Mapping

from tests.chaos.checkers.facts import QUEUE_GATE, US, Facts, has_gate
from tests.chaos.checkers.judging import Judge
from webhook.core.groups.membership import GROUP_ANNOTATION, Membership

CHARGED_SECONDS = 0.5
"""A charge is written before its gate is removed; the two clocks may differ."""


def check_gates(facts: Facts, judge: Judge) -> None:
    """Judge the Pods that waited."""
    _check_end(facts, judge)
    _check_releases(facts, judge)
    _check_groups(facts, judge)


def _check_end(facts: Facts, judge: Judge) -> None:
    end = facts.history.end
    for document in end.pods if end is not None and end.rested else ():
        metadata = document["metadata"]
        judge.expect(
            holds=not has_gate(document),
            of=f"Pod {metadata.get('namespace', '')}/{metadata['name']} ({metadata.get('uid', '')})",
            field=f"gate {QUEUE_GATE}",
            value="present" if has_gate(document) else "absent",
            expected="removed in the end",
            at=end.at if end is not None else 0,
        )


def _list_releases(facts: Facts) -> dict[str, float]:
    """Return when the gate of each Pod that was created with one was removed, by uid."""
    gated = {uid for uid, created in facts.created.items() if created.is_gated}
    found: dict[str, float] = {}
    for event in facts.history.audit:
        if event.resource != "pods" or event.verb not in {"patch", "update"} or event.code != 200:
            continue
        if isinstance(event.response, Mapping):
            uid = event.response.get("metadata", {}).get("uid", "")
            if uid in gated and not has_gate(event.response) and event.response.get("spec"):
                found.setdefault(uid, event.answered_at)
    return found


def _check_releases(facts: Facts, judge: Judge) -> None:
    """Expect that a gate is removed once its Pod is charged."""
    if not facts.history.charges:
        return
    for uid, released_at in _list_releases(facts).items():
        writes = [write for write in facts.charges.get(uid, ()) if write.charged_us]
        charged_at = writes[0].charged_us / US if writes else None
        plan = facts.find_plan(uid)
        if plan is None or not plan.limits or plan.queue is None:
            continue
        judge.expect(
            holds=charged_at is not None
            and (charged_at <= released_at + CHARGED_SECONDS or facts.faults.has_clock_steps),
            of=str(facts.created[uid]),
            field="charged at",
            value="never" if charged_at is None else f"{charged_at:.3f}",
            expected=f"before its gate was removed, {released_at:.3f}",
            at=released_at,
        )


def _check_groups(facts: Facts, judge: Judge) -> None:
    """Expect that the first members of a group are charged together, as many as its size says."""
    charged: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    sizes: dict[tuple[str, str], int] = {}
    for uid, created in facts.created.items():
        annotations = created.document.get("metadata", {}).get("annotations") or {}
        group = Membership.decode(annotations.get(GROUP_ANNOTATION, ""))
        writes = [write for write in facts.charges.get(uid, ()) if write.charged_us]
        if group is None or not group.size:
            continue
        key = created.namespace, f"{group.name} {group.owner}".strip()
        sizes[key] = group.size
        if writes:
            charged[key][uid] = writes[0].charged_us
    for key, moments in charged.items():
        first = min(moments.values())
        together = sum(at_us == first for at_us in moments.values())
        plan = facts.find_plan(next(iter(moments)))
        queue = plan.queue if plan is not None else None
        singly = queue is not None and queue.groups is not None and not queue.groups.keeps_incomplete
        judge.expect(
            holds=together >= sizes[key] or singly or together >= len(moments) > sizes[key],
            of=f"group {key[0]}/{key[1]}",
            field="members charged together",
            value=together,
            expected=f"{sizes[key]}, all or none",
            at=first / US,
        )
