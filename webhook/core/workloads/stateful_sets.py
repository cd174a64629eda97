"""Pods of a StatefulSet: each with its own name, hostname and claims, numbered from the first ordinal.

Source: pkg/controller/statefulset/stateful_set_utils.go of Kubernetes 1.36.
"""

from typing import Any

from webhook.core.kubernetes.label_constraints import UnresolvedLabel
from webhook.core.workloads.workload import (
    HASH,
    REVISION_LABEL,
    Additions,
    WorkloadObject,
    read_items,
    read_mapping,
    read_whole,
)

POD_NAME_LABEL, POD_INDEX_LABEL = "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"


def build_stateful_set_additions(workload: WorkloadObject) -> Additions:
    name, spec = workload.name, workload.spec
    start = read_whole(read_mapping(spec.get("ordinals")).get("start"), 0)
    ordinals = range(start, start + max(1, read_whole(spec.get("replicas"), 1)))
    pod = name.append(f"-{start}")
    revision = name.append(f"-<{REVISION_LABEL}>", f"-{HASH}")
    labels: dict[str, str | UnresolvedLabel] = {
        POD_NAME_LABEL: pod.build_label(),
        POD_INDEX_LABEL: str(start),
        REVISION_LABEL: revision.build_label(),
    }
    if len(ordinals) > 1:
        labels[POD_INDEX_LABEL] = UnresolvedLabel(str(start), numbers=ordinals)
        any_pod = UnresolvedLabel(pod.shown, f"{name.pattern}-[0-9]+")
        labels[POD_NAME_LABEL] = (
            UnresolvedLabel(pod.shown, prefix=f"{name.shown}-", numbers=ordinals) if name.is_known else any_pod
        )
    claims = [claim for item in read_items(spec.get("volumeClaimTemplates")) if (claim := _read_claim_name(item))]
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": f"{claim}-{pod.shown}"}} for claim in claims]
    own = read_items(workload.pod_spec.get("volumes"))
    volumes += [volume for volume in own if read_mapping(volume).get("name") not in claims]
    added = {"hostname": pod.shown}
    if spec.get("serviceName"):
        added["subdomain"] = spec["serviceName"]
    return Additions(name, labels, name=pod, spec={**added, **({"volumes": volumes} if claims else {})})


def _read_claim_name(claim: Any) -> str:
    return str(read_mapping(read_mapping(claim).get("metadata")).get("name") or "")
