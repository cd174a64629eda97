"""Acts on the rollout of a policy, as `podgate policy promote`, `pause`, `retry` and `rollback` do."""

from collections.abc import Awaitable, Callable
from typing import Any

from webhook.commands.pages.rollout_page import format_change
from webhook.console.acts.waiting_pods import list_cluster_arguments, require_cluster
from webhook.console.interface.act import (
    REASON,
    ActPlan,
    Arguments,
    ConsoleAct,
    Form,
    FormField,
    Hands,
    RolloutHand,
)
from webhook.console.interface.page import PageRequest

_REVISION = FormField(
    "to", "Revision", hint="A number, a hash or its first digits; empty: the one in force before.", is_required=False
)


def _list_arguments(hands: Hands) -> Arguments | None:
    found = list_cluster_arguments(hands)
    return None if found is None else (*found, *hands.server_arguments)


def _build_act(
    command: tuple[str, str, str],
    effect: str,
    fields: tuple[FormField, ...],
    act: Callable[[RolloutHand, Form], Awaitable[Any]],
) -> ConsoleAct:
    """Return the act of a command: its name, the past tense for people, and the title."""
    name, done, title = command

    async def plan(_: PageRequest, form: Form) -> ActPlan:
        given = (word for field in fields if form[field.name] for word in (f"--{field.name}", form[field.name]))
        return ActPlan(effect, ("podgate", "policy", name, *given))

    async def perform(hands: Hands, _: PageRequest, form: Form) -> str:
        change, warning = await require_cluster(hands).change_rollout(done, lambda hand: act(hand, form))
        lines = (*format_change(change), *([f"warning: {warning}"] if warning else []))
        return "; ".join(line.strip() for line in lines)

    return ConsoleAct(
        name=f"policy-{name}",
        path=f"/policy/{name}",
        title=title,
        fields=fields,
        plan=plan,
        perform=perform,
        back="/policy",
        link=title,
        list_arguments=_list_arguments,
    )


ACTS = (
    _build_act(
        ("promote", "promoted", "Promote the candidate"),
        "Puts the candidate into force at once, without its remaining steps; without one, the wished policy if that"
        " waits. This ends a pause and a pin.",
        (),
        lambda hand, _: hand.promote(),
    ),
    _build_act(
        ("pause", "paused", "Pause the rollout"),
        "Stops the candidate at its step, or the next one before it begins. Symptoms still take a candidate back.",
        (REASON,),
        lambda hand, form: hand.pause(form["reason"]),
    ),
    _build_act(
        ("retry", "to be tried again", "Try the policy again"),
        "Lets the wished policy be tried again: forgets that it was taken back, and ends a pin and a pause.",
        (),
        lambda hand, _: hand.retry(),
    ),
    _build_act(
        ("rollback", "rolled back", "Roll the policy back"),
        "Puts the policy that was in force before, or the named revision, into force, and pins it: it stays, whatever"
        " the ConfigMap has. The ConfigMap is not changed.",
        (_REVISION, REASON),
        lambda hand, form: hand.roll_back(form["to"] or None, form["reason"]),
    ),
)
