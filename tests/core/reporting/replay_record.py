"""Helpers of the `replay_record` tests that other tests use, too."""

from typing import Any

SECRET = "hunter2"  # part of every private value in the Pods of these tests


CONTAINER: dict[str, Any] = {
    "name": "app",
    "image": f"registry/app:{SECRET}",
    "command": ["sh", "-c", SECRET],
    "args": [f"--password={SECRET}"],
    "env": [{"name": "PASSWORD", "value": SECRET}, {"name": SECRET, "valueFrom": {"secretKeyRef": {"name": SECRET}}}],
    "envFrom": [{"secretRef": {"name": SECRET}}],
    "volumeMounts": [{"name": SECRET, "mountPath": f"/{SECRET}"}],
    "workingDir": SECRET,
    "lifecycle": {"preStop": {"exec": {"command": [SECRET]}}},
    "livenessProbe": {"httpGet": {"path": f"/?token={SECRET}", "port": 1}},
    "ports": [{"name": SECRET, "containerPort": 80}],
    "securityContext": {"seLinuxOptions": {"user": SECRET}},
    "terminationMessagePath": f"/{SECRET}",
    "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}, "claims": [{"name": SECRET}]},
    "restartPolicy": "Always",
    "a-field-of-the-future": {"deep": [SECRET]},
}


POD: dict[str, Any] = {
    "metadata": {
        "name": "web-1",
        "generateName": "web-",
        "namespace": "shop",
        "uid": "u1",
        "labels": {"app": "web"},
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": SECRET,
            "podgate.io/policy-hash": SECRET,
            "podgate.io/anything": SECRET,
            "kubernetes.io/config.mirror": SECRET,
            SECRET: "",
        },
        "ownerReferences": [
            {"kind": "ReplicaSet", "name": "web", "uid": "r1", "controller": True, "apiVersion": f"{SECRET}/v1"}
        ],
        "managedFields": [{"manager": SECRET, "fieldsV1": {"f:spec": {f"f:{SECRET}": {}}}}],
        "finalizers": [f"{SECRET}/finalizer"],
        "selfLink": SECRET,
    },
    "spec": {
        "schedulerName": "podgate-scheduler",
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}]
                }
            }
        },
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        "priorityClassName": "high",
        "priority": 0,
        "preemptionPolicy": "Never",
        "runtimeClassName": "gvisor",
        "schedulingGates": [{"name": "example.com/quota"}],
        "overhead": {"cpu": "10m"},
        "resources": {"requests": {"cpu": "3"}},
        "containers": [CONTAINER],
        "initContainers": [{**CONTAINER, "name": "init"}],
        "ephemeralContainers": [{**CONTAINER, "name": "debug"}],
        "volumes": [{"name": SECRET, "secret": {"secretName": SECRET}}, {"name": "v", "csi": {"driver": SECRET}}],
        "imagePullSecrets": [{"name": SECRET}],
        "hostAliases": [{"ip": "1.2.3.4", "hostnames": [SECRET]}],
        "serviceAccountName": SECRET,
        "securityContext": {"sysctls": [{"name": "kernel", "value": SECRET}]},
        "dnsConfig": {"searches": [SECRET]},
        "hostname": SECRET,
        "nodeName": "node-1",
    },
    "status": {"message": SECRET},
}
