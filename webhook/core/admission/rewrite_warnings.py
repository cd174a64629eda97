"""Warnings about user values that a rewrite replaced or took out: amounts by Clamp, placement by Override, limits."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec.structs import replace

from webhook.core.admission.mutation import HASH_ANNOTATION
from webhook.core.container_resources import shorten_name
from webhook.core.container_resources.plan import merge_ranges
from webhook.core.container_resources.rewrite import is_limit_removal
from webhook.core.findings import Code
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.pod_requests import is_sidecar, parse_nano, shorten
from webhook.core.patch import PatchOperation, parse_pointer
from webhook.core.placement import SERVICE_LABEL, find_replaced_scalar
from webhook.core.policy.model import Service
from webhook.core.policy_fields import ResourceRules, WhenOutside

_KINDS = {"containers": "container", "initContainers": "init container"}
_KEYED = frozenset({"labels", "annotations", "nodeSelector"})
_CONTAINER_TOKENS_MIN = 4  # spec, containers, index, and something in it


def format_path(pod: Pod, pointer: str) -> str:
    """Return the readable path of a JSON Pointer; containers are named, not numbered."""
    tokens = parse_pointer(pointer)
    kind = _KINDS.get(tokens[1]) if tokens[0] == "spec" and len(tokens) >= _CONTAINER_TOKENS_MIN else None
    if kind is not None:
        containers = pod.spec.containers if tokens[1] == "containers" else pod.spec.init_containers
        container = (containers or ())[int(tokens[2])]
        rest = tokens[4:] if tokens[3] == "resources" and tokens[4:] else tokens[3:]
        return f'{kind} "{shorten_name(container)}": {".".join(rest)}'
    text = tokens[0]
    for before, token in pairwise(tokens):
        text += f"[{token}]" if token.isdecimal() or before in _KEYED else f".{token}"
    return text


_OURS = frozenset({SERVICE_LABEL, HASH_ANNOTATION})
_METADATA_NOUNS = {"labels": "label", "annotations": "annotation"}
_WARNINGS_MAX = 10
_WARNING_CHARACTERS_MAX = 120
"""Kubernetes advises API clients to show warnings up to this length."""


def build_warnings(pod: Pod, service: Service, patch: Iterable[PatchOperation], whose: str = "") -> tuple[str, ...]:
    """Return one warning per replaced value or removed limit, at most ten; none if the patch only adds.

    `pod` is the Pod before the patch; `whose` names its workload, for a Pod of a template.
    """
    replaced: list[tuple[str, str]] = []
    for operation in patch:
        if operation.op == "replace":
            text = _describe_replacement(pod, service, operation, whose)
            if text is not None:
                replaced.append(text)
    plan = service.range_plan
    if plan is not None and plan.remove:
        replaced += [_describe_removal(pod, operation) for operation in patch if is_limit_removal(operation)]
    if not replaced:
        return ()
    head = f"{Code.REWRITTEN}: {whose}"
    found = [_shorten(f"{head}{what}", f" ({rule})") for what, rule in replaced[:_WARNINGS_MAX]]
    if len(replaced) > _WARNINGS_MAX:
        found.append(f"{head}{len(replaced) - _WARNINGS_MAX} more values")
    return tuple(found)


def _shorten(what: str, rule: str) -> str:
    whole = what + rule
    if len(whole) <= _WARNING_CHARACTERS_MAX:
        return whole
    return what if len(what) <= _WARNING_CHARACTERS_MAX else f"{what[: _WARNING_CHARACTERS_MAX - 3]}..."


def _describe_replacement(pod: Pod, service: Service, operation: PatchOperation, whose: str) -> tuple[str, str] | None:
    """Describe one replacement, and the rule behind it; None if the old value was not the user's."""
    _, field, *rest = parse_pointer(operation.path)
    if field in _METADATA_NOUNS:
        key = rest[0]
        if key in _OURS:
            return None
        what = f"{_METADATA_NOUNS[field]} {key}: {getattr(pod, field)[key]} replaced by {operation.value}"
        return what, f"placement.{field}, onConflict Override"
    if field in {"containers", "initContainers"}:
        return _describe_amount(pod, service, field, rest, operation, of_template=bool(whose))
    rule = f"placement.{field}, onConflict Override"
    if field == "nodeSelector":
        own = (pod.spec.node_selector or {}).get(rest[0], "")
        return f"nodeSelector {rest[0]}: {own} replaced by {operation.value}", rule
    if field == "topologySpreadConstraints":
        spread = (pod.spec.topology_spread_constraints or ())[int(rest[0])]
        return f"{field}[{rest[0]}] ({spread.topology_key} {spread.when_unsatisfiable}) replaced by the policy's", rule
    former = find_replaced_scalar(pod, service.placement_plan, field)
    return None if former is None else (f"{field} {former} replaced by {operation.value}", rule)


def _describe_removal(pod: Pod, operation: PatchOperation) -> tuple[str, str]:
    """Describe a limit that is taken out."""
    _, field, index, _, _, name = parse_pointer(operation.path)
    containers = pod.spec.containers if field == "containers" else pod.spec.init_containers
    resources = (containers or ())[int(index)].resources
    own = (resources.limits or {}).get(name) if resources is not None else None
    return f"{format_path(pod, operation.path)} {shorten(str(own))} taken out", "resources.container.remove"


def _describe_amount(
    pod: Pod, service: Service, field: str, rest: Sequence[str], operation: PatchOperation, *, of_template: bool
) -> tuple[str, str] | None:
    """Describe a changed amount, and the rule that changed it.

    None for a Pod's request within `max` that becomes a share of its limit: the API server may have written it. It
    writes none into a template.
    """
    index, _, side, name = rest
    rules = service.resources or _NO_RULES
    if field == "containers":
        container = (pod.spec.containers or ())[int(index)]
    else:
        container = (pod.spec.init_containers or ())[int(index)]
        if rules.init_container is not _NO_OWN_RANGE and not is_sidecar(container):
            rules = replace(rules, container=merge_ranges(rules.container, rules.init_container))
    amounts = getattr(container.resources, side)
    own, value = str(amounts[name]), operation.value
    is_unlimited = side == "limits" and parse_nano(own) == 0
    is_lowered = parse_nano(own) > parse_nano(value) or is_unlimited
    rule = _find_lowering_rule(rules, side, name, value) if is_lowered else _find_raising_rule(rules, side, name, value)
    if rule == _SHARE and not of_template:
        high = rules.container.max.get(name)
        if high is None or parse_nano(own) <= parse_nano(high.text):
            return None
    shown = "0 (no limit)" if is_unlimited else shorten(own)
    if rules is not service.resources and service.resources is not None:
        rule = _name_own_bound(rule, service.resources, name)
    return f"{format_path(pod, operation.path)} {shown} {'lowered' if is_lowered else 'raised'} to {value}", rule


def _name_own_bound(rule: str, rules: ResourceRules, name: str) -> str:
    """Return the rule that changed an amount of an init container, which may have bounds of its own."""
    for word, own in (("min", rules.init_container.min), ("max", rules.init_container.max)):
        if name in own:
            rule = rule.replace(f"container.{word},", f"initContainer.{word},")
    return rule


_NO_RULES = ResourceRules()
_NO_OWN_RANGE = _NO_RULES.init_container  # the default of a field is one object
_SHARE = "resources.container.defaultRequestRatio"


def _find_lowering_rule(rules: ResourceRules, side: str, name: str, value: str) -> str:
    """Return the rule that lowered an amount: `max`, or the ratio if the value is below it."""
    high = rules.container.max.get(name)
    clamped = (
        high is not None and rules.when_outside is WhenOutside.CLAMP and parse_nano(value) == parse_nano(high.text)
    )
    if side == "requests" and name in rules.container.default_request_ratio and not clamped:
        return _SHARE
    return "resources.container.max, whenOutside Clamp"


def _find_raising_rule(rules: ResourceRules, side: str, name: str, value: str) -> str:
    low = rules.container.min.get(name)
    if side == "requests" and name in rules.container.max_limit_request_ratio and (low is None or low.text != value):
        return "maxLimitRequestRatio, whenOutside Clamp"
    return "resources.container.min, whenOutside Clamp"
