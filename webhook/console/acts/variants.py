"""Acts on the breaker of one variant of a service, as `podgate breaker --variant` does."""

from typing import Any

from webhook.console.acts.overrides import (
    COMBINE,
    build_entry,
    check_service,
    list_override_arguments,
    list_terms,
    write_entry,
)
from webhook.console.interface.act import DURATION, REASON, ActPlan, ConsoleAct, Form, Hands
from webhook.console.interface.page import PageRequest
from webhook.core.admission.denials import format_utc
from webhook.core.overrides import ManualBreakerState
from webhook.errors import UserError

_BACK = "/service/{name}"


async def _check_variant(asked: PageRequest, service: str, variant: str) -> None:
    """Raise UserError if the server answers, and the service has no such variant with a breaker."""
    await check_service(asked, service)
    try:
        server = await asked.reader.read_server()
    except UserError:  # as of a service, whose breaker can be opened while no server answers
        return
    shares = next((known.shares for known in server.services if known.name == service), None)
    found = [known.name for known in (() if shares is None else shares.variants) if known.has_breaker]
    if server.services and variant not in found:
        remedy = f"variants with a breaker: {', '.join(found)}" if found else "its policy has no placement.shares"
        raise UserError(f"service {service} has no variant {variant!r} with a breaker", remedy)


def _build(words: str, state: ManualBreakerState, effect: str) -> ConsoleAct:
    is_reset = state is ManualBreakerState.AUTOMATIC

    def build_fields(asked: PageRequest) -> dict[str, Any]:
        reset = {"resetAt": format_utc(asked.reader.now_us())} if is_reset else {}
        return {"variant": asked.path["variant"], "breaker": state.value, **reset}

    async def plan(asked: PageRequest, form: Form) -> ActPlan:
        service, variant = asked.path["name"], asked.path["variant"]
        await _check_variant(asked, service, variant)
        build_entry(asked, service, form, build_fields(asked))
        end = "It is done once, and not later than after" if is_reset else "It ends after"
        text = effect.format(variant=variant, service=service)
        command = ("podgate", "breaker", words, service, "--variant", variant, *list_terms(form))
        return ActPlan(f"{text} {end} {form['for']}.", command)

    async def perform(hands: Hands, asked: PageRequest, form: Form) -> str:
        return await write_entry(hands, asked, build_entry(asked, asked.path["name"], form, build_fields(asked)), form)

    return ConsoleAct(
        name=f"variant-{words}",
        path=f"{_BACK}/variant/{{variant}}/{words}",
        title=f"{words.capitalize()} the breaker of variant {{variant}}: {{name}}",
        fields=(DURATION, REASON, COMBINE),
        plan=plan,
        perform=perform,
        back=_BACK,
        list_arguments=list_override_arguments,
    )


ACTS = (
    _build(
        "open",
        ManualBreakerState.FORCED_OPEN,
        "New Pods of {service} get the variant after {variant}, and Pods of {variant} that wait for a node are evicted."
        " No Pod is denied.",
    ),
    _build(
        "close",
        ManualBreakerState.FORCED_CLOSED,
        "New Pods of {service} get {variant}, even if its Pods have found no node.",
    ),
    _build(
        "reset",
        ManualBreakerState.AUTOMATIC,
        "Closes the breaker of {variant} of {service} once; from then on it works automatically.",
    ),
)
