"""Checks that all servers and controllers of an installation agree: on the store, the keys in it, and the policy."""

from collections.abc import Callable, Iterator

from webhook.core.checks.check import Observation, Section, Severity
from webhook.core.checks.facts import ClusterFacts, Json
from webhook.core.document.configmap import NAMESPACE


def _explain_single_process(facts: ClusterFacts) -> str:
    """Explain why there is nothing to compare, "" if there is: the section about servers covers a single process."""
    found = len(facts.processes) + len(facts.silent)
    return "" if found > 1 else "no other server or controller was found in the cluster"


SECTION = Section("servers and controllers together", absence=_explain_single_process)
_COUNTING = ("podgate", "podgate-controller")
_FLAGS = ("--store", "--cluster")
_SAME = "give all of them one"


def _explain_single_deployment(facts: ClusterFacts) -> str:
    found = [deployment for deployment in facts.deployments if deployment.name in _COUNTING]
    return "" if len(found) > 1 else "the Deployments of a server and a controller are not both in the cluster"


@SECTION.check(
    "arguments-differ", "their Deployments name one store", "deployments", absence=_explain_single_deployment
)
def arguments_differ(facts: ClusterFacts) -> Iterator[Observation]:
    deployments = {deployment.name: deployment for deployment in facts.deployments if deployment.name in _COUNTING}
    for flag in _FLAGS:
        values = {name: deployment.find_argument(flag) for name, deployment in sorted(deployments.items())}
        if len(set(values.values())) > 1:
            shown = ", ".join(f"{name}: {_hide_password(value)}" for name, value in values.items())
            yield Observation(f"Deployments in {NAMESPACE}", f"args {flag}", shown, f"{_SAME} {flag}")


@SECTION.check(
    "process-unreachable",
    "the status of each can be read",
    "pods",
    severity=Severity.WARNING,
    absence=_explain_single_process,
)
def process_unreachable(facts: ClusterFacts) -> Iterator[Observation]:
    for name, reason in facts.silent.items():
        yield Observation(name, "GET /status", reason, "see its log; it was not compared with the others")


@SECTION.check("stores-differ", "they count in one place", "processes")
def stores_differ(facts: ClusterFacts) -> Iterator[Observation]:
    yield from _compare_values(
        facts, "status.store", _describe_store, f"{_SAME} --store: each counts on its own, and limits add up"
    )


@SECTION.check("cluster-names-differ", "they use one name of the cluster", "processes")
def cluster_names_differ(facts: ClusterFacts) -> Iterator[Observation]:
    remedy = f"{_SAME} --cluster: it is in the keys of the counters"
    yield from _compare_values(
        facts, "status.store.cluster", lambda status: status["store"].get("cluster") or "", remedy
    )


@SECTION.check("policies-differ", "they apply one policy", "processes")
def policies_differ(facts: ClusterFacts) -> Iterator[Observation]:
    remedy = "wait for the watches (podgate check --wait 1m); see the errors of the policy in each log"
    yield from _compare_values(facts, "status.policy.hash", lambda status: status["policy"]["hash"] or "none", remedy)


def _compare_values(
    facts: ClusterFacts, field: str, value_of: Callable[[Json], str], remedy: str
) -> Iterator[Observation]:
    """Yield one finding if processes have different values; older versions of Podgate may not report theirs."""
    values: dict[str, list[str]] = {}
    for name, status in sorted(facts.processes.items()):
        value = value_of(status)
        if value:
            values.setdefault(value, []).append(name)
    if len(values) > 1:
        shown = "; ".join(f"{value}: {', '.join(names)}" for value, names in values.items())
        yield Observation(f"Pods in {NAMESPACE}", field, shown, remedy)


def _describe_store(status: Json) -> str:
    """Return the processes of Redis and the database in them, "" if they do not report them."""
    store = status["store"]
    if store["kind"] != "redis":
        return str(store["kind"])
    ids = sorted(server.get("runId") or "" for server in store.get("servers", ()))
    return f"redis {', '.join(ids)} database {store.get('database', 0)}" if all(ids) and ids else ""


def _hide_password(value: str) -> str:
    """Return a value without a password."""
    scheme, separator, rest = value.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if separator else value or "the default"
