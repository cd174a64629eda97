"""Readable text of expressions and selectors, with long lists cut."""

from webhook.core.kubernetes.types import LabelSelector, NodeRequirement, Requirement

_SHOWN = 8


def of_requirement(requirement: NodeRequirement | Requirement) -> str:
    values = requirement.values or ()
    more = [f"{len(values) - _SHOWN} more"] if len(values) > _SHOWN else []
    listed = f" [{', '.join([*values[:_SHOWN], *more])}]" if values else ""
    return f"{requirement.key} {requirement.operator}{listed}"


def of_selector(selector: LabelSelector | None) -> str:
    if selector is None:
        return "for no Pods"
    parts = [f"{key}={value}" for key, value in (selector.match_labels or {}).items()]
    parts += [of_requirement(one) for one in selector.match_expressions or ()]
    more = [f"{len(parts) - _SHOWN} more"] if len(parts) > _SHOWN else []
    return f"for Pods of {', '.join([*parts[:_SHOWN], *more]) or 'any label'}"
