"""Acts that write or end overrides of one service, as `podgate override`, `breaker`, `quota` and `queue` do."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from webhook.console.interface.act import DURATION, REASON, ActPlan, Arguments, ConsoleAct, Form, FormField, Hands
from webhook.console.interface.page import PageRequest
from webhook.core.admission.denials import format_utc
from webhook.core.document.formats.amounts import parse_duration
from webhook.core.document.formats.names import FormatError
from webhook.core.kubernetes.timestamps import format_rfc3339
from webhook.core.overrides import ManualBreakerState, Override, PartialModes, QueueState
from webhook.core.policy_fields import Mode
from webhook.errors import NoSuchServiceError, UserError
from webhook.policy_in_force.overrides_editor import (
    Combination,
    OverridesEditor,
    find_doubt,
    parse_new_entry,
    read_checking_policy,
)

_BACK = "/service/{name}"
_KEPT = "unchanged"
_COMBINATIONS: dict[str, tuple[Combination, Arguments]] = {
    "add": (Combination.BESIDE, ()),
    "merge": (Combination.MERGE_UNTIL, ("--merge",)),
    "replace": (Combination.REPLACE, ("--replace",)),
}
COMBINE = FormField(
    "combine",
    "With overrides in force",
    "add",
    tuple(_COMBINATIONS),
    "Add it beside those of the service, merge it with them until its end, or replace them all.",
)
_CONCERNS = PartialModes.__struct_fields__
_FACTOR = FormField("factor", "Quota factor", "", (), "Such as 0.5 or 3; empty: unchanged.", is_required=False)
_MODES = tuple(FormField(name, f"Mode of {name}", _KEPT, (_KEPT, *Mode)) for name in _CONCERNS)


@dataclass(frozen=True, slots=True)
class _Change:
    """One kind of override, made of a form: its fields, its command, and its effect in words."""

    build: Callable[[Form, str], dict[str, Any]]
    """`fields(form, now)` of the entry."""
    command: Callable[[Form], Arguments]
    """Words and options of the command; `SERVICE` stands for the service."""
    describe: Callable[[Form], str]
    """With `SERVICE` too."""
    fields: tuple[FormField, ...] = ()
    duration: FormField = field(default=DURATION)
    end: str = "It ends after"
    """What is said of the time."""


_SERVICE = "SERVICE"


def list_override_arguments(hands: Hands) -> Arguments:
    return hands.file_arguments or hands.cluster_arguments


async def check_service(asked: PageRequest, service: str) -> None:
    """Raise NoSuchServiceError if the server answers, has a policy, and has no such service."""
    try:
        server = await asked.reader.read_server()
    except UserError:  # a breaker can be opened while no server answers; the policy is checked too
        return
    if server.services and service not in {known.name for known in server.services}:
        raise NoSuchServiceError(f"no service {service!r}", "see the first page for the services of this server")


def build_entry(asked: PageRequest, service: str, form: Form, fields: dict[str, Any]) -> Override:
    """Return the entry of a form with a time and a reason. UserError: a field is wrong."""
    try:
        length_us = parse_duration(form["for"], "10m or 1h30m")
    except FormatError as error:
        raise UserError(f"For: {form['for']!r}: {error.reason}", error.remedy) from None
    until = format_rfc3339(asked.reader.now_us() + length_us)
    return parse_new_entry({"service": service, **fields, "until": until, "reason": form["reason"]})


def list_terms(form: Form) -> Arguments:
    """Return the options of a command that say what a form says of time, reason and other overrides."""
    return ("--for", form["for"], "--reason", form["reason"], *_COMBINATIONS[form["combine"]][1])


async def write_entry(hands: Hands, asked: PageRequest, entry: Override, form: Form) -> str:
    """Write an entry, and return in a sentence what is in force now."""
    async with hands.open_overrides() as store:
        policy, unchecked = await read_checking_policy(store)
        editor = OverridesEditor(store, policy, asked.reader.now_us)
        result = await editor.add(entry, _COMBINATIONS[form["combine"]][0])
        doubt = unchecked or find_doubt(policy, entry)
        warning = f"; {doubt}" if doubt else ""
        return f"{result.service}: {result}; written to {store.place}{warning}"


def _build_act(name: str, path: str, title: str, change: _Change) -> ConsoleAct:
    async def plan(asked: PageRequest, form: Form) -> ActPlan:
        service = asked.path["name"]
        await check_service(asked, service)
        build_entry(asked, service, form, change.build(form, format_utc(asked.reader.now_us())))
        words = tuple(service if word == _SERVICE else word for word in change.command(form))
        effect = f"{change.describe(form).replace(_SERVICE, service)} {change.end} {form['for']}."
        return ActPlan(effect, ("podgate", *words, *list_terms(form)))

    async def perform(hands: Hands, asked: PageRequest, form: Form) -> str:
        fields = change.build(form, format_utc(asked.reader.now_us()))
        entry = build_entry(asked, asked.path["name"], form, fields)
        return await write_entry(hands, asked, entry, form)

    form_fields = (*change.fields, change.duration, REASON, COMBINE)
    return ConsoleAct(
        name=name,
        path=f"{_BACK}/{path}",
        title=f"{title}: {{name}}",
        fields=form_fields,
        plan=plan,
        perform=perform,
        back=_BACK,
        link=title,
        list_arguments=list_override_arguments,
    )


def _read_override(form: Form, _: str) -> dict[str, Any]:
    modes = {name: form[name] for name in _CONCERNS if form[name] != _KEPT}
    found = ({"quotaFactor": form["factor"]} if form["factor"] else {}) | ({"modes": modes} if modes else {})
    if not found:
        raise UserError("nothing to do", "give a quota factor, or change a mode")
    return found


def _list_override(form: Form) -> Arguments:
    factor = ("--quota-factor", form["factor"]) if form["factor"] else ()
    modes = (word for name in _CONCERNS if form[name] != _KEPT for word in ("--mode", f"{name}={form[name]}"))
    return ("override", _SERVICE, *factor, *modes)


def _describe_override(form: Form) -> str:
    factor = [f"multiplies the limits of its own windows by {form['factor']}"] if form["factor"] else []
    modes = [f"sets its mode of {name} to {form[name]}" for name in _CONCERNS if form[name] != _KEPT]
    return f"{_SERVICE}: {', and '.join(factor + modes)}."


def _build_breaker(words: str, state: ManualBreakerState, effect: str, title: str) -> ConsoleAct:
    def build(_: Form, now: str) -> dict[str, Any]:
        reset = {"resetAt": now} if state is ManualBreakerState.AUTOMATIC else {}
        return {"breaker": state.value, **reset}

    end = "It is done once, and not later than after" if state is ManualBreakerState.AUTOMATIC else "It ends after"
    change = _Change(build, lambda _: ("breaker", words, _SERVICE), lambda _: effect, end=end)
    return _build_act(f"breaker-{words}", f"breaker/{words}", title, change)


def _build_queue(words: str, state: QueueState, effect: str, title: str, length: str) -> ConsoleAct:
    duration = FormField(DURATION.name, DURATION.label, length, hint=DURATION.hint)
    change = _Change(
        lambda _, __: {"queue": state.value},
        lambda _: ("queue", words, _SERVICE),
        lambda _: effect,
        duration=duration,
    )
    return _build_act(f"queue-{words}", f"queue/{words}", title, change)


_WINDOW = FormField("window", "Window", hint="One of the service's own windows, such as 1m.")
_AMOUNT = FormField("hard", "Amount to add", hint="RESOURCE=AMOUNT, such as pods=100; several with spaces between.")


def _split_amounts(form: Form) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    for text in form["hard"].split():
        name, separator, value = text.partition("=")
        if not (separator and name and value):
            raise UserError(f"Amount to add: {text!r}: not RESOURCE=AMOUNT", "write for example pods=100")
        if name in found:
            raise UserError(f"Amount to add: {name} is given twice", "keep one of the two")
        found[name] = value
    return list(found.items())


_GRANT = _Change(
    lambda form, _: {"grant": [{"window": form["window"], "hard": dict(_split_amounts(form))}]},
    lambda form: (
        *("quota", "grant", _SERVICE, "--window", form["window"]),
        *(word for name, value in _split_amounts(form) for word in ("--hard", f"{name}={value}")),
    ),
    lambda form: f"Adds {form['hard']} to the limit of {_SERVICE} in its window of {form['window']}.",
    (_WINDOW, _AMOUNT),
)


async def _plan_end(asked: PageRequest, _: Form) -> ActPlan:
    service = asked.path["name"]
    await check_service(asked, service)
    return ActPlan(f"Ends all overrides in force for {service} at once.", ("podgate", "override", service, "--clear"))


async def _end(hands: Hands, asked: PageRequest, _: Form) -> str:
    service = asked.path["name"]
    async with hands.open_overrides() as store:
        policy, _unchecked = await read_checking_policy(store)
        ended = await OverridesEditor(store, policy, asked.reader.now_us).clear(service)
        listed = "; ".join(map(str, ended))
        return f"{service}: ended: {listed}" if ended else f"{service}: there was no override in {store.place}"


ACTS = (
    _build_breaker(
        "open",
        ManualBreakerState.FORCED_OPEN,
        f"Denies all new Pods of {_SERVICE}, whatever its breaker's own state; a service that degrades denies none.",
        "Open the breaker",
    ),
    _build_breaker(
        "close",
        ManualBreakerState.FORCED_CLOSED,
        f"Admits Pods of {_SERVICE}, whatever its breaker's own state. Outcomes are ignored meanwhile.",
        "Close the breaker",
    ),
    _build_breaker(
        "reset",
        ManualBreakerState.AUTOMATIC,
        f"Closes the breaker of {_SERVICE} once, and resets its counters; from then on it works automatically.",
        "Reset the breaker",
    ),
    _build_act("grant", "quota/grant", "Grant quota", _GRANT),
    _build_act(
        "override",
        "override",
        "Override the policy",
        _Change(_read_override, _list_override, _describe_override, (_FACTOR, *_MODES)),
    ),
    ConsoleAct(
        name="override-end",
        path=f"{_BACK}/override/end",
        title="End all overrides: {name}",
        fields=(),
        plan=_plan_end,
        perform=_end,
        back=_BACK,
        link="End all overrides",
        list_arguments=list_override_arguments,
    ),
    _build_queue(
        "pause",
        QueueState.PAUSED,
        f"Stops releasing Pods of {_SERVICE}; new Pods wait too. Their longest wait keeps running.",
        "Pause the queue",
        "1h",
    ),
    _build_queue(
        "resume",
        QueueState.RUNNING,
        f"Releases Pods of {_SERVICE} again, as its limits allow.",
        "Resume the queue",
        "10m",
    ),
)
