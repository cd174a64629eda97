"""Pod templates of kinds that are not Kubernetes' own: those that Podgate knows, and those of a policy."""

from collections.abc import Sequence

from webhook.core.kubernetes.api_groups import guess_resource
from webhook.core.policy.model import Policy
from webhook.core.workloads.custom_kinds import KNOWN_TEMPLATES, TemplatePaths


def list_template_paths(policy: Policy) -> TemplatePaths:
    """Return the paths of all kinds; an entry of the policy replaces what Podgate knows of its kind."""
    return {**KNOWN_TEMPLATES, **{(entry.api_group, entry.kind): entry.templates for entry in policy.workloads}}


def find_template_paths(policy: Policy, group: str, kind: str) -> Sequence[str]:
    """Return the paths of one kind, () if it is not known or makes no Pods."""
    for entry in policy.workloads:
        if entry.kind == kind and entry.api_group == group:
            return entry.templates
    return KNOWN_TEMPLATES.get((group, kind), ())


def list_custom_resources(policy: Policy) -> dict[str, list[str]]:
    """Return the resources that have Pod templates, by API group."""
    named = {(entry.api_group, entry.kind): entry.resource for entry in policy.workloads}
    found: dict[str, list[str]] = {}
    for (group, kind), paths in list_template_paths(policy).items():
        resource = named.get((group, kind)) or guess_resource(kind)
        if paths and resource not in found.setdefault(group, []):
            found[group].append(resource)
    return {group: resources for group, resources in found.items() if resources}


def list_template_fields(policy: Policy) -> tuple[str, ...]:
    """Return the fields of objects that hold Pod templates, such as `spec`."""
    paths = (path for paths in list_template_paths(policy).values() for path in paths)
    return tuple(sorted({path.partition(".")[0] for path in paths}))
