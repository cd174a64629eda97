"""Pod templates of kinds that are not Kubernetes' own: those that Podgate knows, and those of a policy."""

from webhook.core.policy.model import Policy
from webhook.core.workloads.custom_kinds import KNOWN_TEMPLATES, TemplatePaths


def list_template_paths(policy: Policy) -> TemplatePaths:
    """Return the paths of all kinds; an entry of the policy replaces what Podgate knows of its kind."""
    return {**KNOWN_TEMPLATES, **{(entry.api_group, entry.kind): entry.templates for entry in policy.workloads}}
