"""Remedies of reduced mode: how this installation restricts who reaches a port where callers are not authenticated."""

from webhook.core.checks.facts import ClusterFacts
from webhook.core.checks.network_policies import OpenRule
from webhook.core.checks.repair_installation import find_address, is_of_chart, record_of
from webhook.core.document.configmap import NAMESPACE

_PAGE = "docs/reduced-mode.md"
_REDUCED, _SHIPPED = "podgate-reduced", "podgate"
_FILE = "manifests/components/reduced/35-networkpolicy.yaml"
_OF_CHART = (
    "repeat helm upgrade with networkPolicy.enabled=true, and only your API servers in networkPolicy.admissionFrom"
)


def describe_caller_restriction(facts: ClusterFacts) -> str:
    """Describe how to restrict callers where nothing does."""
    if find_address(facts)[0]:
        return "let a firewall admit only your API servers: NetworkPolicies do not reach a server outside the cluster"
    if is_of_chart(facts):
        return f"{_OF_CHART} ({_PAGE})"
    if record_of(facts) is not None:
        return f"repeat podgate install, then put your API servers' addresses into NetworkPolicy {_REDUCED} ({_PAGE})"
    return f"put your API servers' addresses into {_FILE} and apply it ({_PAGE})"


def repair_open_rule(facts: ClusterFacts, rule: OpenRule, *, is_alone: bool) -> tuple[str, str]:
    """Return remedy and command for a rule that restricts nobody, or admits placeholders; "" for no command.

    `is_alone`: no other policy selects the servers.
    """
    name = rule.policy.name
    if rule.policy.labels.get("app.kubernetes.io/managed-by") == "Helm":
        return f"{_OF_CHART} ({_PAGE})", ""
    if rule.is_placeholder and (record_of(facts) is not None or name != _REDUCED):
        remedy = f"replace it by the addresses of your API servers, or delete it if they call through agents ({_PAGE})"
        return remedy, f"kubectl edit networkpolicy {name} -n {NAMESPACE}"
    if rule.is_placeholder:
        return f"replace it in {_FILE}, or delete it if the API servers call through agents, and apply it ({_PAGE})", ""
    if name == _SHIPPED and is_alone:
        return f"{describe_caller_restriction(facts)}; then delete this one: what several admit adds up", ""
    if name == _SHIPPED:
        remedy = f"delete it, which is for authenticated callers: what several policies admit adds up ({_PAGE})"
        return remedy, f"kubectl delete networkpolicy {name} -n {NAMESPACE}"
    return f"name your API servers only, or delete it: what several policies admit adds up ({_PAGE})", ""
