"""Rules of `placement.allow`: lists that have no effect, or leave onConflict without any."""

from collections.abc import Iterator

from webhook.core.document.yaml.parts import DocumentPart
from webhook.core.document.yaml.problems import Problem
from webhook.core.policy_spec import OnConflict

_FIELDS = {
    "schedulerNames": "schedulerName",
    "priorityClassNames": "priorityClassName",
    "runtimeClassNames": "runtimeClassName",
}


def allowed_names_can_be_kept(service: DocumentPart) -> Iterator[Problem]:
    """Warn where onConflict decides about each value that a Pod may have."""
    for placement in service.select("placement"):
        for listed, field in _FIELDS.items():
            names = placement.get("allow", listed)
            if names is None or placement.get(field) is None:
                continue
            own = placement.get("onConflict", field) or placement.get("onConflict", "default")
            rule = OnConflict.DENY if own is None else OnConflict(own.read(str))
            if rule is not OnConflict.KEEP:
                reason = f"has no effect: {field} is set, and onConflict {rule} keeps no other"
                yield names.wrong_field(reason, f"remove it, or write onConflict: {{{field}: Keep}}")
            elif names.is_empty and own is not None:
                reason = f"leaves nothing that onConflict Keep in line {own.node.key_line} could keep"
                yield names.wrong_field(reason, f"list names, or write onConflict: {{{field}: Deny}}")
