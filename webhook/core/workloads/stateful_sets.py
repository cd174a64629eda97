"""Pods of a StatefulSet: each with its own name, hostname and claims, numbered from the first ordinal.

Source: pkg/controller/statefulset/stateful_set_utils.go of Kubernetes 1.36.
"""

from typing import Any

from webhook.core.kubernetes.label_constraints import UnresolvedLabel
from webhook.core.workloads.workload import HASH, REVISION_LABEL, Additions, WorkloadObject, items, mapping, whole

POD_NAME_LABEL, POD_INDEX_LABEL = "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"


def of_stateful_set(workload: WorkloadObject) -> Additions:
    name, spec = workload.name, workload.spec
    start = whole(mapping(spec.get("ordinals")).get("start"), 0)
    ordinals = range(start, start + max(1, whole(spec.get("replicas"), 1)))
    pod = name.plus(f"-{start}")
    revision = name.plus(f"-<{REVISION_LABEL}>", f"-{HASH}")
    labels: dict[str, str | UnresolvedLabel] = {
        POD_NAME_LABEL: pod.label(),
        POD_INDEX_LABEL: str(start),
        REVISION_LABEL: revision.label(),
    }
    if len(ordinals) > 1:
        labels[POD_INDEX_LABEL] = UnresolvedLabel(str(start), numbers=ordinals)
        any_pod = UnresolvedLabel(pod.shown, f"{name.pattern}-[0-9]+")
        labels[POD_NAME_LABEL] = (
            UnresolvedLabel(pod.shown, prefix=f"{name.shown}-", numbers=ordinals) if name.is_known else any_pod
        )
    claims = [claim for item in items(spec.get("volumeClaimTemplates")) if (claim := _claim_name(item))]
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": f"{claim}-{pod.shown}"}} for claim in claims]
    own = items(workload.pod_spec.get("volumes"))
    volumes += [volume for volume in own if mapping(volume).get("name") not in claims]
    added = {"hostname": pod.shown}
    if spec.get("serviceName"):
        added["subdomain"] = spec["serviceName"]
    return Additions(name, labels, name=pod, spec={**added, **({"volumes": volumes} if claims else {})})


def _claim_name(claim: Any) -> str:
    return str(mapping(mapping(claim).get("metadata")).get("name") or "")
