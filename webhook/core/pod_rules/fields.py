"""Fields that rules may read: the messages of a Pod as expressions know them, and which of them a record keeps.

Commands, arguments and the values of environment variables are no part: a message of a rule could show a secret.
"""

from collections.abc import Mapping

Fields = Mapping[str, str | tuple[int, str]]
"""Field to type, with its number where that is not its place.

A type is `string`, `int`, `bool`, `bytes` or a message of the table; `int?` may be absent; `[T]` is a list, `{T}` a map
from strings.
"""

ENTRIES_MAX = 50
"""Limit of each list and map of a Pod, on which the bound on cost counts. A rule that reads a longer one fails."""
NESTED_MAX = 500
"""Limit of the entries that the lists and maps of one field have in all containers."""
TEXT_CHARACTERS_MAX = 1024

PACKAGE = "podgate"
CONTAINERS = frozenset({"containers", "initContainers"})
VOLUME_SOURCES: Mapping[str, Fields] = {
    "hostPath": {"path": "string", "type": "string"},
    "secret": {"secretName": "string"},
    "configMap": {"name": "string"},
    "persistentVolumeClaim": {"claimName": "string"},
    "emptyDir": {"medium": "string"},
    "csi": {"driver": "string"},
    "nfs": {"server": "string", "path": "string"},
}
_SECURITY: Fields = {
    "runAsNonRoot": "bool?",
    "runAsUser": "int?",
    "runAsGroup": "int?",
    "seccompProfile": "Profile",
    "appArmorProfile": "Profile",
    "seLinuxOptions": "SELinuxOptions",
}
_RECORDED_OF_CONTAINER: Fields = {
    "name": "string",
    "restartPolicy": "string",
    "requests": "Amounts",
    "limits": "Amounts",
}
_RECORDED_OF_POD: Fields = {
    "name": "string",
    "generateName": "string",
    "namespace": "string",
    "labels": "{string}",
    "ownerKind": "string",
    "containers": "[Container]",
    "initContainers": "[Container]",
    "requests": "Amounts",
    "limits": "Amounts",
    "schedulerName": "string",
    "nodeName": "string",
    "nodeSelector": "{string}",
    "tolerations": "[Toleration]",
    "topologySpreadConstraints": "[SpreadConstraint]",
    "priorityClassName": "string",
    "priority": "int?",
    "preemptionPolicy": "string",
    "runtimeClassName": "string",
    "schedulingGates": "[string]",
}
MESSAGES: Mapping[str, Fields] = {
    "Quantity": {"value": "int", "milliValue": "int"},
    "Amounts": {"cpu": "int?", "memory": "int?", "ephemeralStorage": "int?", "named": "{int}"},
    "Profile": {"type": "string", "localhostProfile": "string"},
    "SELinuxOptions": {"type": "string", "user": "string", "role": "string", "level": "string"},
    "Capabilities": {"add": "[string]", "drop": "[string]"},
    "Sysctl": {"name": "string", "value": "string"},
    "KeyReference": {"name": "string", "key": "string"},
    "NameReference": {"name": "string"},
    "EnvVarSource": {"secretKeyRef": "KeyReference", "configMapKeyRef": "KeyReference"},
    "EnvVar": {"name": "string", "valueFrom": "EnvVarSource"},
    "EnvFrom": {"prefix": "string", "secretRef": "NameReference", "configMapRef": "NameReference"},
    "Port": {"name": "string", "containerPort": "int", "hostPort": "int", "protocol": "string"},
    "VolumeMount": {"name": "string", "mountPath": "string", "subPath": "string", "readOnly": "bool"},
    "Probe": dict.fromkeys(("initialDelaySeconds", "periodSeconds", "timeoutSeconds", "failureThreshold"), "int"),
    **{f"{source[0].upper()}{source[1:]}": fields for source, fields in VOLUME_SOURCES.items()},
    "Volume": {"name": "string", "kind": "string"}
    | {source: f"{source[0].upper()}{source[1:]}" for source in VOLUME_SOURCES},
    "ContainerSecurity": {
        **_SECURITY,
        "privileged": "bool?",
        "allowPrivilegeEscalation": "bool?",
        "readOnlyRootFilesystem": "bool?",
        "procMount": "string",
        "capabilities": "Capabilities",
    },
    "PodSecurity": {**_SECURITY, "fsGroup": "int?", "supplementalGroups": "[int]", "sysctls": "[Sysctl]"},
    "Container": {
        **_RECORDED_OF_CONTAINER,
        "image": "string",
        "imagePullPolicy": "string",
        "ports": "[Port]",
        "env": "[EnvVar]",
        "envFrom": "[EnvFrom]",
        "volumeMounts": "[VolumeMount]",
        "securityContext": "ContainerSecurity",
        "livenessProbe": "Probe",
        "readinessProbe": "Probe",
        "startupProbe": "Probe",
    },
    "Toleration": {
        "key": "string",
        "operator": "string",
        "value": "string",
        "effect": "string",
        "tolerationSeconds": "int?",
    },
    "SpreadConstraint": {"maxSkew": "int", "topologyKey": "string", "whenUnsatisfiable": "string"},
    "Pod": {
        **_RECORDED_OF_POD,
        "annotations": "{string}",
        "hostNetwork": "bool",
        "hostPID": "bool",
        "hostIPC": "bool",
        "hostUsers": "bool?",
        "shareProcessNamespace": "bool",
        "serviceAccountName": "string",
        "automountServiceAccountToken": "bool?",
        "restartPolicy": "string",
        "terminationGracePeriodSeconds": "int?",
        "activeDeadlineSeconds": "int?",
        "dnsPolicy": "string",
        "imagePullSecrets": "[string]",
        "securityContext": "PodSecurity",
        "volumes": "[Volume]",
    },
}
"""The types that expressions know. cpu is in millicores, all other amounts in whole units, rounded up."""

_RECORDED: Mapping[str, Fields] = {"Pod": _RECORDED_OF_POD, "Container": _RECORDED_OF_CONTAINER}

Field = tuple[str, str]
"""A message of the table, and one of its fields."""


def list_unrecorded(reads: frozenset[Field]) -> list[str]:
    """Return the fields among `reads` that records of Pods do not keep, for people."""
    names = {"Pod": "pod", "Container": "containers"}
    return sorted(
        f"{names[message]}.{field}"
        for message, field in reads
        if message in _RECORDED and field not in _RECORDED[message]
    )
