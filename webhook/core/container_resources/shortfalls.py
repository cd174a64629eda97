"""Shortfalls of one container: missing defaults, and amounts out of range, as text."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Literal, NamedTuple

from webhook.core.container_resources.plan import Amount, ResourceRule
from webhook.core.container_resources.ranges import OutOfRange, PodLevel, RequestAndLimit, Word, find_out_of_range
from webhook.core.findings import Code
from webhook.core.kubernetes.pod_requests import Side, shorten

NO_LIMIT = "'0' (no limit)"
_SIDES: tuple[Side, ...] = ("limits", "requests")


class Shortfall(NamedTuple):
    """One bound (min, max or default) that one resource violates, by its limit, its request, or both.

    `excess`: distance of each side from the bound in billionths; 0 if the amount is missing.
    """

    code: Code
    name: str
    word: Word
    excess: tuple[tuple[Side, int], ...]
    text: str


def find_shortfalls(
    rule: ResourceRule, before: RequestAndLimit, wanted: RequestAndLimit, level: PodLevel
) -> Iterator[Shortfall]:
    """Yield missing amounts and amounts out of range; the latter are the user's unless the rewrite changes them."""
    yield from _find_missing(rule.name, before, wanted)
    for word, group in groupby(find_out_of_range(rule, before, level), key=lambda amount: amount.word):
        lasting = {amount.side for amount in find_out_of_range(rule, wanted, level) if amount.word == word}
        yield _build_range_shortfall(rule, before, word, tuple(group), lasting)


def find_limit_shortfalls(word: Literal["remove", "forbid"], name: str, limit: Amount | None) -> Iterator[Shortfall]:
    """Yield a limit that the policy takes out (`remove`), or that no Pod may have (`forbid`)."""
    if limit is None:
        return
    code = Code.RESOURCES_UNFULFILLED if word == "remove" else Code.RESOURCES_OUTSIDE
    excess: tuple[tuple[Side, int], ...] = (("limits", 0),)
    text = f"limits[{name}] is {shorten(limit.text)!r}, expected none (resources.container.{word})"
    yield Shortfall(code, name, word, excess, f"{text}: leave it out, also in a LimitRange and in other webhooks")


def _find_missing(name: str, before: RequestAndLimit, wanted: RequestAndLimit) -> Iterator[Shortfall]:
    lacking = {
        side: getattr(wanted, side) for side in _SIDES if getattr(before, side) is None and getattr(wanted, side)
    }
    if before.limits is not None or wanted.requests == wanted.limits:
        lacking.pop("requests", None)  # the API server defaults it to the limit
    if lacking:
        text = " and ".join(
            f"{side}[{name}] is missing, expected {shorten(give.text)!r}" for side, give in lacking.items()
        )
        yield Shortfall(Code.RESOURCES_UNFULFILLED, name, "default", tuple((side, 0) for side in lacking), text)


def _build_range_shortfall(
    rule: ResourceRule, before: RequestAndLimit, word: Word, excess: Sequence[OutOfRange], lasting: set[Side]
) -> Shortfall:
    """Return the shortfall of amounts beyond one bound; those of the `lasting` sides are not rewritten."""
    sides = tuple((amount.side, amount.far) for amount in excess)
    shown = {side: _format_amount(rule, side, getattr(before, side)) for side, _ in sides}
    is_lost = lasting.isdisjoint(shown)
    code = Code.RESOURCES_UNFULFILLED if is_lost else Code.RESOURCES_OUTSIDE
    text = describe_excess(rule.name, shown, word, excess[0].bound, is_lost=is_lost)
    return Shortfall(code, rule.name, word, sides, text)


def _format_amount(rule: ResourceRule, side: Side, amount: Amount) -> str:
    """Return the written value, or its meaning: a limit of 0 is no limit."""
    is_no_limit = side == "limits" and amount.nano == 0 and rule.zero_is_no_limit
    return NO_LIMIT if is_no_limit else repr(shorten(amount.text))


def describe_excess(name: str, shown: Mapping[Side, str], word: Word, bound: Amount, *, is_lost: bool = False) -> str:
    """Describe the values beyond `bound`, with a remedy if the user wrote them."""
    values = " and ".join(f"{side}[{name}] is {value}" for side, value in shown.items())
    least, remedy = ("at most", "ask for less") if word == "max" else ("at least", "ask for more")
    if is_lost:
        return f"{values}, expected {least} {bound.text!r}"
    if word == "max" and NO_LIMIT in shown.values():
        remedy = "write a limit"
    return f"{values}, {least} {bound.text!r} is allowed: {remedy}"
