"""Rules of `placement.allow`: entries without effect, also because of `onConflict`."""

from collections.abc import Iterator

from webhook.core.document.yaml.parts import DocumentPart, stop_at_invalid
from webhook.core.document.yaml.problems import Problem
from webhook.core.kubernetes.types import Toleration
from webhook.core.placement.scalar_fields import DEFAULT_SCHEDULER
from webhook.core.placement.toleration_match import covers
from webhook.core.policy_fields import OnConflict

_FIELDS = {
    "schedulerNames": "schedulerName",
    "priorityClassNames": "priorityClassName",
    "runtimeClassNames": "runtimeClassName",
}

_SET_BY_PLACEMENT = "has no effect: what placement itself sets is allowed"


def allowed_names_can_be_kept(service: DocumentPart) -> Iterator[Problem]:
    """`placement.allow.schedulerNames`, `priorityClassNames`, `runtimeClassNames`: names beside `onConflict: Keep`.

    Warn about names where placement sets the field and `onConflict` is another, about an empty list with Keep, and
    about the name that placement sets.
    """
    for placement in service.select("placement"):
        for listed, field in _FIELDS.items():
            names, value = placement.get("allow", listed), placement.get(field)
            if names is None or value is None:
                continue
            own = placement.get("onConflict", field) or placement.get("onConflict", "default")
            rule = OnConflict.DENY if own is None else OnConflict(own.read(str))
            if rule is not OnConflict.KEEP:
                reason = f"has no effect: {field} is set, and onConflict {rule} keeps no other"
                yield names.report_field(reason, f"remove it, or write onConflict: {{{field}: Keep}}")
            elif names.is_empty and own is not None:
                reason = f"leaves nothing that onConflict Keep in line {own.node.key_line} could keep"
                yield names.report_field(reason, f"list names, or write onConflict: {{{field}: Deny}}")
            else:
                same = [name for name in names.items() if name.read(str) == value.read(str)]
                yield from (name.report(_SET_BY_PLACEMENT, "remove it") for name in same)


def allowed_values_add_something(service: DocumentPart) -> Iterator[Problem]:
    """`placement.allow`: warn about an empty map, and about values that are allowed without it.

    These are keys of `placement.nodeSelector`, tolerations that `placement.tolerations` covers, and the default
    scheduler.
    """
    for placement in service.select("placement"):
        allow = placement.get("allow")
        if allow is not None and allow.is_empty:
            yield allow.report_field(
                "allows everything", "write lists, of which an empty one allows nothing, or remove it"
            )
        yield from stop_at_invalid(_check_set_by_placement(placement))
        for name in placement.select("allow", "schedulerNames", "*"):
            if name.read(str) == DEFAULT_SCHEDULER:
                yield name.report("has no effect: the default scheduler is always allowed", "remove it")


def _check_set_by_placement(placement: DocumentPart) -> Iterator[Problem]:
    own_labels = placement.get("nodeSelector")
    labels = {} if own_labels is None else own_labels.fields()
    for key in placement.select("allow", "nodeSelectorKeys", "*"):
        if key.read(str) in labels:
            yield key.report(_SET_BY_PLACEMENT, "remove it")
    own = [part.read(Toleration) for part in placement.select("tolerations", "*")]
    for part in placement.select("allow", "tolerations", "*"):
        if any(covers(toleration, part.read(Toleration)) for toleration in own):
            yield part.report_field(_SET_BY_PLACEMENT, "remove it")
