"""Formats of names: DNS names, label keys and values, resources, patterns, reasons, and URLs."""

import re

from webhook.core.document.yaml.problems import find_close


class FormatError(ValueError):
    """A text violates a format: reason and remedy."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy


def require(holds: object, reason: str, remedy: str) -> None:
    if not holds:
        raise FormatError(reason, remedy)


NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUFFIX = re.compile(r"\*[-a-z0-9]{0,61}[a-z0-9]")
_PREFIX = re.compile(r"[a-z0-9][-a-z0-9]{0,61}\*")
_SUBDOMAIN_LENGTH = 253


def is_subdomain(text: str) -> bool:
    return len(text) <= _SUBDOMAIN_LENGTH and all(_LABEL.fullmatch(part) for part in text.split("."))


def check_dns_label(text: str) -> None:
    require(
        _LABEL.fullmatch(text),
        "not a DNS-1123 label",
        "use at most 63 of a-z, 0-9 and -, with a letter or digit at both ends",
    )


def check_dns_subdomain(text: str) -> None:
    require(is_subdomain(text), "not a DNS-1123 name", "use a-z, 0-9, - and ., with a letter or digit at both ends")


def check_label_key(text: str) -> None:
    prefix, slash, name = text.rpartition("/")
    remedy = "write NAME or DOMAIN/NAME, such as disk-type or example.com/disk-type"
    require(NAME.fullmatch(name), "not a label key", remedy)
    require(not slash or is_subdomain(prefix), "not a label key: its prefix is not a DNS name", remedy)


def check_label_key_or_empty(text: str) -> None:
    if text:
        check_label_key(text)


_PODGATES_DOMAIN = "podgate.io"
_KUBERNETES_DOMAINS = ("kubernetes.io", "k8s.io")
OPEN_KUBERNETES_KEYS = frozenset(
    {
        "cluster-autoscaler.kubernetes.io/safe-to-evict",
        "descheduler.alpha.kubernetes.io/evict",
        "scheduling.k8s.io/group-name",
    }
)
"""Keys of Kubernetes' domains that a policy may set on Pods: only schedulers and their companions read them."""
_CONTROLLERS_KEYS = frozenset(
    {"controller-revision-hash", "controller-uid", "job-name", "pod-template-generation", "pod-template-hash"}
)
"""Labels without a domain that Kubernetes' controllers write and select by."""


def check_pod_metadata_key(text: str) -> None:
    """Check the key of a label or annotation that a policy sets on Pods."""
    check_label_key(text)
    domain = text.rpartition("/")[0]
    require(not _is_within(domain, _PODGATES_DOMAIN), "Podgate's own", "use a key of another domain")
    is_kubernetes = any(_is_within(domain, parent) for parent in _KUBERNETES_DOMAINS) or text in _CONTROLLERS_KEYS
    remedy = f"use a key of another domain; of Kubernetes' only {', '.join(sorted(OPEN_KUBERNETES_KEYS))}"
    require(not is_kubernetes or text in OPEN_KUBERNETES_KEYS, "Kubernetes' own", remedy)


def _is_within(domain: str, parent: str) -> bool:
    return domain == parent or domain.endswith(f".{parent}")


def check_label_value(text: str) -> None:
    remedy = "use at most 63 of A-Z, a-z, 0-9, -, _ and ., with a letter or digit at both ends"
    require(not text or NAME.fullmatch(text), "not a label value", remedy)


def check_namespace_pattern(text: str) -> None:
    require(
        text != "*", "* alone matches every namespace", "name them, or write `anyNamespace: true` in `match` instead"
    )
    remedy = "write a namespace's name, or its beginning or end with a single *, such as shop-* or *-prod"
    is_pattern = _PREFIX.fullmatch(text) or _SUFFIX.fullmatch(text)
    require(_LABEL.fullmatch(text) or is_pattern, "not a namespace, nor a beginning or end with one *", remedy)


def check_class_pattern(text: str) -> None:
    head, star, tail = text.partition("*")
    require(text != "*", "* alone allows every name", "leave out the list instead")
    is_at_an_end = not (head and tail) and is_subdomain(f"{head}a{tail}")
    remedy = "write a name, or its beginning or end with a single *, such as batch-* or *-low"
    require(
        is_at_an_end if star else is_subdomain(text), "not a DNS-1123 name, nor a beginning or end with one *", remedy
    )


def check_name_pattern(text: str) -> None:
    remedy = "write a container's name, or the beginning of one and a single * at the end"
    require(
        _LABEL.fullmatch(text) or _PREFIX.fullmatch(text), "not a container, nor a prefix with one trailing *", remedy
    )


_KIND = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")
_PATH = re.compile(r"[A-Za-z_][-A-Za-z0-9_]*(\.([A-Za-z_][-A-Za-z0-9_]*|\*))*")


def check_api_group(text: str) -> None:
    group = text.partition("/")[0]
    require(
        group == text or not is_subdomain(group), "a group with a version", f"write {group}: all versions are meant"
    )
    require(is_subdomain(text), "not an API group", "write what stands before the / of apiVersion, such as ray.io")


def check_kind(text: str) -> None:
    singular = text[:1].upper() + text[1:]
    remedy = f"write {singular}" if _KIND.fullmatch(singular) else "write it as in manifests, such as RayCluster"
    require(_KIND.fullmatch(text), "not the kind of an object", remedy)


def check_template_path(text: str) -> None:
    """Check a path to Pod templates, such as spec.workers.*.template."""
    meant = re.sub(r"\[[0-9*]*\]", ".*", text.strip("{}$ ")).strip(".")
    meant = meant.removesuffix(".spec")
    example = f"write {meant}" if _PATH.fullmatch(meant) else "write one such as spec.workers.*.template"
    require(_PATH.fullmatch(text), "not a path of fields, with * for each entry of a list or a mapping", example)
    require(not text.endswith(".spec"), "the spec of a Pod template, not the template with its metadata", example)


def check_reason(text: str) -> None:
    require(text.strip(), "empty", "write why, such as INC-1234")
    require(text.isprintable(), "not plain text on one line", "write it on one line, without control characters")


_URL = re.compile(
    r"https?://[A-Za-z0-9._-]+(:[0-9]{1,5})?(/[!-~]*)?|https?://\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?(/[!-~]*)?"
)


def check_http_url(text: str) -> None:
    remedy = "write one such as https://prometheus.monitoring.svc:9090; user and password are read from files"
    require(_URL.fullmatch(text), "not the URL of an HTTP server", remedy)


_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_QUOTA_RESOURCES = (
    "pods",
    *_COMPUTE,
    *(f"requests.{name}" for name in _COMPUTE),
    *(f"limits.{name}" for name in _COMPUTE),
)


def _is_extended(text: str) -> bool:
    prefix, slash, name = text.rpartition("/")
    return bool(slash) and is_subdomain(prefix) and NAME.fullmatch(name) is not None


def check_quota_per(text: str) -> None:
    meant = find_close(text, ("Service", "Namespace"))
    remedy = f"did you mean {meant}?" if meant else "use Service, Namespace, or {namespaceLabel: KEY} for teams"
    require(text in {"Service", "Namespace"}, "not one of its values", remedy)


def check_quota_resource(text: str) -> None:
    bare = text.removeprefix("requests.")
    if text in _QUOTA_RESOURCES or (bare.startswith("hugepages-") and NAME.fullmatch(bare)):
        return
    if text.startswith("requests.") and _is_extended(bare):
        return
    if _is_extended(text) and not text.startswith(("limits.", "count/")):
        raise FormatError("an extended resource is counted by its requests", f"write requests.{text}")
    meant = find_close(text, _QUOTA_RESOURCES)
    known = f"use {', '.join(_QUOTA_RESOURCES)}, hugepages-SIZE or requests.DOMAIN/NAME"
    raise FormatError("not a resource of Pods", f"did you mean {meant}?" if meant else known)


def check_container_resource(text: str) -> None:
    if text in _COMPUTE or (text.startswith("hugepages-") and NAME.fullmatch(text)) or _is_extended(text):
        return
    meant = find_close(text.removeprefix("requests.").removeprefix("limits."), _COMPUTE)
    known = f"use {', '.join(_COMPUTE)}, hugepages-SIZE or DOMAIN/NAME"
    raise FormatError("not a container's resource", f"did you mean {meant}?" if meant else known)


def check_removable_limit(text: str) -> None:
    """Check the name of a limit to remove or to forbid: only cpu is given back by a container that must share it."""
    if text == "limits.cpu":
        return
    name = text.removeprefix("limits.")
    if text.startswith("limits.") and name in _COMPUTE:
        reason = f"a container without a limit of {name} may take all of its node's"
        raise FormatError(reason, f"remove it, and raise container.default of {name} where it is too low")
    if text.startswith("limits.") and (name.startswith("hugepages-") or _is_extended(name)):
        raise FormatError("Kubernetes requires its request and limit to be equal", "remove it")
    if text.startswith("requests."):
        raise FormatError("not a limit, and the scheduler needs requests", "write limits.cpu, or remove it")
    raise FormatError("not a limit that a container can do without", "write limits.cpu")
