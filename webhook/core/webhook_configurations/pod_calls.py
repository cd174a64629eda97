"""Calls for new Pods of one region: which are made and for which reasons, and which are left out by an expression.

Of the two calls for a Pod at most one is left out on account of what the policy says, so that a policy newer than the
configurations is noticed. The mutating call is left out where nothing is written; the validating call then reports a
Pod that the newer policy would rewrite (MutationMissing). The validating call is left out for a Pod that carries the
hash of exactly this policy; the mutating call, which is then made, writes the hash of a newer one.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from webhook.core import placement
from webhook.core.admission.mutation import HASH_ANNOTATION
from webhook.core.placement import SERVICE_LABEL
from webhook.core.policy.model import Service
from webhook.core.policy_fields import Mode
from webhook.core.webhook_configurations.cel import format_label, quote
from webhook.core.webhook_configurations.service_regions import ServiceRegion, format_any_match

_TRIED = frozenset({Mode.WARN, Mode.AUDIT})


def list_reasons_to_validate(service: Service) -> tuple[str, ...]:
    """Return the reasons to validate a new Pod that has been rewritten; none if that cannot change the result.

    A stanza counts in any mode, also Disabled: an override may change the mode, and does not change this configuration.
    """
    return tuple(_describe_reasons(service))


def _describe_reasons(service: Service) -> Iterator[str]:
    modes = service.modes
    if service.quota is not None:
        yield _describe_stanza("quota", modes.quota)
    if service.pool is not None:
        yield _describe_stanza("pool", modes.quota)
    if service.breaker is not None:
        yield _describe_stanza("breaker", modes.breaker)
    ranges, plan = service.range_plan, service.placement_plan
    if ranges is not None and (ranges.judges or ranges.pod or ranges.qos_classes is not None):
        yield _describe_stanza("resources", modes.resources)
    is_judged = plan is not None and (placement.has_requirements(plan) or modes.placement in _TRIED)
    if is_judged or (service.placement is not None and service.placement.shares is not None):
        yield _describe_stanza("placement", modes.placement)
    rule_modes = {rule.mode for rule in service.rules}
    for mode in (Mode.ENFORCE, Mode.WARN, Mode.AUDIT):
        if mode in rule_modes:
            yield _describe_stanza("rules", mode)
            return


def _describe_stanza(stanza: str, mode: Mode) -> str:
    return f"{stanza} (Disabled, which an override may change)" if mode is Mode.DISABLED else f"{stanza} ({mode})"


def denies_node_name(service: Service) -> bool:
    """Return whether a Pod that names its node is denied."""
    return service.placement_plan is not None and not service.placement_plan.allow_node_name


_EXPRESSION_CHARACTERS_MAX = 60_000
"""Longest expression. The API server accepts 100,000 characters, and limits the cost of evaluation as well."""
_LEFT_OUT_MAX = 100
"""Services of a region whose calls are left out: each service is compared with all earlier ones."""
_TURNS_MAX = 20
"""Alternations between services that write and services that do not, each of which nests the expression."""
_HASH = f"object.metadata.?annotations[?{quote(HASH_ANNOTATION)}].orValue('')"
_NAMED = format_label(SERVICE_LABEL)
_NO_NODE_NAME = "object.spec.?nodeName.orValue('') == ''"
_TOO_LONG = f"the expression would be longer than {_EXPRESSION_CHARACTERS_MAX} characters"
_TOO_MANY = f"only {_LEFT_OUT_MAX} services are left out"
_NONE_UNOWNED = "a service without podSelector may own every Pod"
_UNSURE = "its namespaceSelector does not select every namespace of this webhook"
_OF_SOME_OWNERS = "its ownerKinds do not select every Pod"
_IDLE = "all modes are Disabled"
_WRITES = f"at least the label {SERVICE_LABEL} and the policy's hash are written"
_CLEAN = "nothing can be refused, charged or reported once this policy has rewritten the Pod"
_TRIPWIRE = "the call shows if the policy is newer than this configuration"


class ServiceCall(NamedTuple):
    """Whether a call is made for new Pods of a service, or of no service (""), and why."""

    service: str
    is_made: bool
    reason: str


class PodCalls(NamedTuple):
    """The calls of one webhook; `expression`: of the new Pods to call for, "" for all of them."""

    expression: str
    calls: tuple[ServiceCall, ...]


def make_all_calls(services: Sequence[ServiceRegion], reason: str) -> PodCalls:
    """Return the calls of a webhook that leaves none out."""
    names = (*(region.service.name for region in services), "")
    return PodCalls("", tuple(ServiceCall(name, is_made=True, reason=reason) for name in names))


def make_mutating_calls(services: Sequence[ServiceRegion]) -> PodCalls:
    """Return the mutating calls: for Pods that a service writes into, and for Pods that carry the service label.

    The first service that selects a Pod owns it. A service that writes nothing hides later ones only if it is sure to
    own the Pod.
    """
    turns = [region for region in services if _writes(region) or region.is_sure]
    groups = [(writes, list(group)) for writes, group in groupby(turns, _writes)]
    if len(groups) > _TURNS_MAX:
        groups = [(True, list(filter(_writes, services)))]
    hiding = {region.service.name for writes, group in groups for region in group if not writes}
    written: str | None = None
    for writes, group in reversed(groups):
        selected = format_any_match(group)
        if writes:
            written = "" if not selected or written == "" else " ||\n".join(filter(None, (selected, written)))
        elif written is not None and selected:
            written = f"!({selected})" + (f" && (\n{written}\n)" if written else "")
        else:
            written = None
    expression = "" if written == "" else " ||\n".join(filter(None, (f"{_NAMED}.hasValue()", written)))
    if len(expression) > _EXPRESSION_CHARACTERS_MAX:
        return make_all_calls(services, _TOO_LONG)
    calls = [
        ServiceCall(region.service.name, is_made=False, reason=f"{_IDLE}: nothing is written")
        if expression and region.service.name in hiding
        else ServiceCall(region.service.name, is_made=True, reason=_explain_mutating(region))
        for region in services
    ]
    unowned = f"nothing is written, unless the Pod carries the label {SERVICE_LABEL}" if expression else _NONE_UNOWNED
    return PodCalls(expression, (*calls, ServiceCall("", is_made=not expression, reason=unowned)))


def make_validating_calls(services: Sequence[ServiceRegion], policy_hash: str) -> PodCalls:
    """Return the validating calls: for all Pods but those that were rewritten by this policy and can only be admitted.

    The expression does not trust the label alone, which a tenant can write too: the service must own the Pod.
    """
    rewritten: list[str] = []
    calls: list[ServiceCall] = []
    for place, region in enumerate(services):
        reason = _explain_validating(region) or (_TOO_MANY if len(rewritten) >= _LEFT_OUT_MAX else "")
        expression = "" if reason else _format_clean_pods(region, services[:place])
        if expression:
            rewritten.append(expression)
        why = _CLEAN if expression else reason or "an earlier service may own each of its Pods"
        calls.append(ServiceCall(region.service.name, is_made=not expression, reason=why))
    calls.append(ServiceCall("", is_made=True, reason=f"counted; {_TRIPWIRE}"))
    listed = " ||\n  ".join(rewritten)
    expression = f"request.operation != 'CREATE' ||\n{_HASH} != {quote(policy_hash)} ||\n!(\n  {listed}\n)"
    if len(expression) > _EXPRESSION_CHARACTERS_MAX:
        return make_all_calls(services, _TOO_LONG)
    return PodCalls(expression if rewritten else "", tuple(calls))


def _writes(region: ServiceRegion) -> bool:
    return not region.service.modes.is_all_disabled()


def _explain_mutating(region: ServiceRegion) -> str:
    if _writes(region):
        return _WRITES
    return f"{_IDLE}; {_NONE_UNOWNED if region.is_sure else _explain_unsure(region)}"


def _explain_unsure(region: ServiceRegion) -> str:
    return _OF_SOME_OWNERS if region.service.match.owner_kinds else _UNSURE


def _explain_validating(region: ServiceRegion) -> str:
    """Return why each new Pod of a service is validated; "" if a rewritten Pod need not be."""
    if not _writes(region):
        return f"{_IDLE}; {_TRIPWIRE}"
    return ", ".join(list_reasons_to_validate(region.service)) or ("" if region.is_sure else _explain_unsure(region))


def _format_clean_pods(region: ServiceRegion, earlier: Sequence[ServiceRegion]) -> str:
    """Return the expression of the Pods that a service owns and that carry its label; "" if there is none."""
    others = [other for other in earlier if other.may_meet(region)]
    hidden = format_any_match(others)
    if others and not hidden:
        return ""
    parts = (
        f"{_NAMED}.orValue('') == {quote(region.service.name)}",
        region.expression,
        _NO_NODE_NAME if denies_node_name(region.service) else "",
        f"!({hidden})" if hidden else "",
    )
    return " && ".join(filter(None, parts))
