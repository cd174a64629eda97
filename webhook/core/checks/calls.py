"""Checks of calls: whether the API server really calls Podgate, and Podgate accepts its calls."""

from collections.abc import Iterator
from itertools import islice

from webhook.core.admission.mutation import HASH_ANNOTATION
from webhook.core.checks.check import Observation, Section
from webhook.core.checks.facts import ClusterFacts, labels_of
from webhook.core.checks.objects import PodObject
from webhook.core.checks.repair_command import RENDERED, build_install_command, build_render_command
from webhook.core.checks.repair_installation import is_at_target
from webhook.core.checks.webhooks import webhooks_of
from webhook.core.installation.call_remedies import FLAG, find_remedy
from webhook.core.installation.probe import PodProbe, find_failed_call, is_denied_by_podgate, list_pod_probes
from webhook.core.kubernetes.controllers import find_claimed_owner_kind
from webhook.core.kubernetes.timestamps import parse_microseconds
from webhook.core.policy.matching import Matcher

SECTION = Section("calls of the API server")
_PROBES_MAX = 10
_NAMED_MAX = 10
_GRACE_US = 5_000_000
"""A review is counted, and a webhook configuration takes effect, within this time."""
_RECENT_US = 3_600_000_000
_POD_DRY_RUN = "Pod (dryRun)"
_REMEDY_BY_REASON = {
    "handshake_refused_by_client": "the API server does not trust the server's certificate: renew it or caBundle",
    "handshake_no_certificate": "start kube-apiserver with --admission-control-config-file (docs/apiserver.md)",
    "handshake_certificate_expired": "renew the API server's client certificate: podgate apiserver-files --once",
    "handshake_certificate_foreign": "sign the API server's client certificate by a CA in --client-ca",
    "authentication_no_token": "add a token to the kubeconfig of --admission-control-config-file",
    "authentication_expired": "renew the API server's token: podgate apiserver-files --once",
}
_EXPIRED_OUTSIDE = "renew the API server's token: podgate install again, with the same --server-url, --store and --pki"
_REFUSED = "the server refuses its calls: do first what calls-refused says"


def probes_of(facts: ClusterFacts) -> tuple[PodProbe, ...]:
    """Return a Pod of each of the first services, to be created with dryRun; none without a valid policy."""
    if facts.policy is None:
        return ()
    live = [namespace for namespace in facts.namespaces if namespace.metadata.deletion_timestamp is None]
    return tuple(
        islice(
            list_pod_probes(facts.policy.policy, {namespace.name: labels_of(namespace) for namespace in live}),
            _PROBES_MAX,
        )
    )


def is_conclusive(message: str) -> bool:
    """Return whether an error to a Pod created with dryRun tells whether Podgate was called."""
    return is_denied_by_podgate(message) or bool(find_failed_call(message))


@SECTION.check("webhooks-not-called", "Pods of services pass through Podgate (tried with dryRun)", "probes")
def webhooks_not_called(facts: ClusterFacts) -> Iterator[Observation]:
    for probe in facts.probes:
        if probe.status < 300 and not probe.is_rewritten:  # noqa: PLR2004  HTTP's success range
            value = f"absent from a Pod of service {probe.service} in namespace {probe.namespace}: it was not called"
            advice, command = f"{RENDERED}; then check the address that they call", build_render_command(facts)
            if "status" in facts.unread:
                advice = f"start a server, because none answers, and try again; else {advice}"
            if facts.refused:
                advice, command = _REFUSED, ""
            yield Observation(_POD_DRY_RUN, f"metadata.annotations[{HASH_ANNOTATION}]", value, advice, command)


@SECTION.check("calls-fail", "calls do not fail where Pods depend on them", "probes")
def calls_fail(facts: ClusterFacts) -> Iterator[Observation]:
    for probe in facts.probes:
        reason = find_failed_call(probe.message)
        if reason:
            until_then = "admit Pods meanwhile: kubectl delete validatingwebhookconfiguration podgate"
            place = f"{_POD_DRY_RUN} of service {probe.service} in {probe.namespace}"
            advice = _REFUSED if facts.refused else find_remedy(reason)
            yield Observation(place, "status", reason, f"{advice}; {until_then}", _find_redirection_command(facts))


@SECTION.check("calls-fail-open", "the API server skips no failed call", "fail_open")
def calls_fail_open(facts: ClusterFacts) -> Iterator[Observation]:
    for webhook, count in sorted(facts.fail_open.items()):
        value = f"{count} more during this check: Pods were admitted unchecked"
        advice = f"kube-apiserver's log has the error; check that clientConfig of {webhook} reaches the server"
        advice = _REFUSED if facts.refused else advice
        field, command = "apiserver_admission_webhook_fail_open_count", _find_redirection_command(facts)
        yield Observation(f"kube-apiserver webhook {webhook}", field, value, advice, command)


@SECTION.check("calls-refused", "the server refuses no call", "refused")
def calls_refused(facts: ClusterFacts) -> Iterator[Observation]:
    is_outside = any("url" in webhook["clientConfig"] for _, webhook in webhooks_of(facts))
    for reason, count in sorted(facts.refused.items()):
        advice = _REMEDY_BY_REASON.get(reason, "the server's log has the reason of each refused call")
        is_renewed = is_outside and reason == "authentication_expired"
        advice, command = (_EXPIRED_OUTSIDE, build_install_command(facts)) if is_renewed else (advice, "")
        field = f"podgate_refused_calls_total{{reason={reason}}}"
        yield Observation(facts.server, field, f"{count} more", advice, command)


@SECTION.check("apiserver-flag-missing", "kube-apiserver has credentials for webhooks", "workload_pods", "status")
def apiserver_flag_missing(facts: ClusterFacts) -> Iterator[Observation]:
    """Read the static Pods of kube-apiserver, where it runs in Pods (kubeadm)."""
    for pod in facts.workload_pods if facts.status["clientIdentity"] != "reduced" else ():
        if pod.metadata.namespace != "kube-system" or pod.labels.get("component") != "kube-apiserver":
            continue
        words = [
            word
            for container in pod.spec.containers or ()
            for word in (*(container.command or ()), *(container.args or ()))
        ]
        if not any(word.partition("=")[0] == FLAG for word in words):
            yield Observation(
                f"Pod kube-system/{pod.name}", FLAG, "absent: it sends no certificate, no token", find_remedy("")
            )


@SECTION.check("pods-unjudged", "existing Pods of services were judged", "workload_pods", "namespaces", "policy")
def pods_unjudged(facts: ClusterFacts) -> Iterator[Observation]:
    """Report recent Pods without the annotation, one by namespace; older ones may be older than their service."""
    for namespace, pods in _find_owned_pods(facts).items():
        recent = [pod for pod in pods if facts.at_us - _read_creation_us(pod) < _RECENT_US]
        found = [pod.name for pod in recent if HASH_ANNOTATION not in (pod.metadata.annotations or {})]
        if found:
            value = f"absent from {len(found)} of {len(recent)} Pods of the last hour, such as {found[0]}"
            kept = {pod.name for pod in recent if not pod.metadata.owner_references}
            again = [name for name in found if name not in kept][:_NAMED_MAX]
            advice = "they passed unjudged: find out why (see calls), then delete those that a controller creates again"
            if {*found} & kept:
                advice += "; create the others again yourself: no controller does"
            command = f"kubectl delete pod -n {namespace} {' '.join(again)}" if again else ""
            yield Observation(
                f"Pods in {namespace}", f"metadata.annotations[{HASH_ANNOTATION}]", value, advice, command
            )


@SECTION.check(
    "nobody-asks", "reviews arrive while Pods are created", "status", "workload_pods", "namespaces", "policy"
)
def nobody_asks(facts: ClusterFacts) -> Iterator[Observation]:
    """Compare the last review with the newest Pod. With several servers, the one that answers may get no calls."""
    if "lastReviewAt" not in facts.status or facts.status["replicas"]["count"] > 1:
        return
    last = facts.status["lastReviewAt"]
    since_us = parse_microseconds(last or facts.status["policy"]["loadedAt"] or facts.status["time"]) + _GRACE_US
    for namespace, pods in _find_owned_pods(facts).items():
        newest = max(pods, key=_read_creation_us)
        if _read_creation_us(newest) > since_us:
            value = f"{last or 'never'}, but Pod {newest.name} in {namespace} is newer"
            advice, command = (_REFUSED, "") if facts.refused else (RENDERED, build_render_command(facts))
            yield Observation(facts.server, "status.lastReviewAt", value, advice, command)
            return


def _find_redirection_command(facts: ClusterFacts) -> str:
    """Return the command that renders the webhooks, if some call another address than that of this installation."""
    return "" if all(is_at_target(facts, webhook) for _, webhook in webhooks_of(facts)) else build_render_command(facts)


def _find_owned_pods(facts: ClusterFacts) -> dict[str, list[PodObject]]:
    """Return the Pods that a service owns and that were created by CREATE after its namespace, by namespace."""
    if facts.policy is None:
        return {}
    matcher, exempt = Matcher(facts.policy.policy), facts.policy.policy.exemptions
    labels = {namespace.name: labels_of(namespace) for namespace in facts.namespaces}
    found: dict[str, list[PodObject]] = {}
    for pod in facts.workload_pods:
        namespace = pod.metadata.namespace
        made_by_daemon_set = any(reference.kind == "DaemonSet" for reference in pod.metadata.owner_references or ())
        if namespace not in facts.owners or (made_by_daemon_set and exempt.daemon_sets):
            continue
        kind = find_claimed_owner_kind(pod.metadata.owner_references, pod.labels)
        owner = matcher.find_owner(namespace, labels[namespace], pod.labels, kind)
        if owner is not None and not owner.modes.is_all_disabled():
            found.setdefault(namespace, []).append(pod)
    return found


def _read_creation_us(pod: PodObject) -> int:
    return parse_microseconds(pod.metadata.creation_timestamp or "1970-01-01T00:00:00Z")
