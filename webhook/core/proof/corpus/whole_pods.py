"""Plain Pods, and Pods with special metadata, nulls, unknown fields, or special scalar fields."""

from webhook.core.proof.corpus.containers import Json, build_pod

_FILLED_IN = {
    "schedulerName": "default-scheduler",
    "priority": 0,
    "preemptionPolicy": "PreemptLowerPriority",
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "enableServiceLinks": True,
    "serviceAccountName": "default",
    "securityContext": {},
    "terminationGracePeriodSeconds": 30,
    "tolerations": [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    ],
}

PLAIN: dict[str, Json] = {
    "a plain Pod": build_pod(),
    "a plain Pod as the API server fills it in": build_pod(
        {"labels": {"podgate.io/sample": "1", "pod-template-hash": "5d4f8c7b9"}},
        **_FILLED_IN,
    ),
    "a plain Pod with the cluster's default priority class": build_pod(
        {
            "managedFields": [
                {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {"f:containers": {}}}}
            ]
        },
        **(_FILLED_IN | {"priority": 1000, "priorityClassName": "cluster-default"}),
    ),
}

ODD: dict[str, Json] = {
    "a Pod with null for all that may be absent": build_pod(
        {"labels": None, "annotations": None, "ownerReferences": None},
        **dict.fromkeys(
            (
                "affinity",
                "initContainers",
                "nodeSelector",
                "overhead",
                "priority",
                "resources",
                "schedulingGates",
                "tolerations",
                "topologySpreadConstraints",
            )
        ),
    ),
    "a Pod with empty fields": build_pod(
        {"labels": {}, "annotations": {}},
        affinity={},
        initContainers=[],
        nodeSelector={},
        priorityClassName="",
        schedulerName="",
        schedulingGates=[],
        tolerations=[],
        topologySpreadConstraints=[],
    ),
    "a Pod that carries the label and annotation of another service": build_pod(
        {"labels": {"podgate.io/service": "forged"}, "annotations": {"podgate.io/policy-hash": "forged"}}
    ),
    "a Pod with fields of a newer Kubernetes": build_pod(
        affinity={"nodeAffinity": {"fieldOfTomorrow": [{}]}, "affinityOfTomorrow": {"deep": {"er": None}}},
        fieldOfTomorrow={"a/b": [1, 2.5, None, {"~": True}]},
        tolerations=[{"key": "a", "operator": "OperatorOfTomorrow", "fieldOfTomorrow": 1}],
    ),
    "a Pod with a scheduling gate": build_pod(schedulingGates=[{"name": "example.com/gate"}]),
    "a Pod with a node's name": build_pod(nodeName="node-1"),
    "a Pod with a scheduler of its own": build_pod(schedulerName="scheduler-of-its-own"),
    "a Pod with a priority class of its own": build_pod(
        {"managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {"f:priorityClassName": {}}}}]},
        preemptionPolicy="Never",
        priority=1000,
        priorityClassName="class-of-its-own",
    ),
    "a Pod with a runtime class and its overhead": build_pod(
        overhead={"cpu": "250m", "memory": "120Mi"}, runtimeClassName="class-of-its-own"
    ),
}
