"""Rules of `nodes.sources` and `scheduling`: sources of load, and plausible thresholds."""

import re
from collections.abc import Iterator
from posixpath import normpath

from webhook.core.document.yaml.parts import DocumentPart
from webhook.core.document.yaml.problems import Problem
from webhook.core.kubernetes.quantity import Number
from webhook.core.policy_fields.nodes import PROFILES_WITH_PRESSURE, PROMETHEUS_FILES, Profile
from webhook.core.policy_fields.scheduling import Numa, WhenUnknown

_SOURCES = ("prometheus", "metricsAPI", "requests")
_IN_OWN_POD = re.compile(r"http://(localhost|127\.0\.0\.1|\[::1\])(:|/|$)")
_CREDENTIALS = ("tokenFile", "basicAuth")
_USER_FILES = ("usernameFile", "passwordFile")
_PRESSURES = ("memory", "io")
"""Pressures with useful thresholds: `thresholds_are_meant` warns about any threshold of cpu."""
_LOW = 0.3
MEASURED = ("hot", "pressure", "whenUnknown")
"""Fields of `scheduling` that read the load of nodes."""
_DECIDING = (*MEASURED, "numa", "score", "near")
_DECIDING_NOTHING: tuple[object, ...] = ({}, Numa.IGNORED, WhenUnknown.ADMIT)


def a_source_is_one(document: DocumentPart) -> Iterator[Problem]:
    """`nodes.sources[]`: one of `prometheus`, `metricsAPI` and `requests` in each; only `prometheus` may recur.

    Refuse others, and sources after `requests`.
    """
    seen: set[str] = set()
    for source in document.select("nodes", "sources", "*"):
        kinds = [name for name in _SOURCES if name in source.fields()]
        if len(kinds) != 1:
            reason = "names no source" if not kinds else f"names {len(kinds)} sources"
            yield source.report(reason, f"write one of {', '.join(_SOURCES)} in each entry, such as - metricsAPI: {{}}")
            continue
        if kinds[0] in seen and kinds[0] != "prometheus":
            yield source.report(f"{kinds[0]} is listed twice", "remove one")
        elif "requests" in seen:
            yield source.report("never read: requests, before it, are always known", "put requests last")
        seen.add(kinds[0])


def credentials_are_one(document: DocumentPart) -> Iterator[Problem]:
    """`nodes.sources[].prometheus.tokenFile`, `basicAuth`: refuse both, because a request has one of them."""
    for source in document.select("nodes", "sources", "*", "prometheus"):
        part = source.get("basicAuth")
        if part is not None and source.get("tokenFile") is not None:
            yield part.report_field("beside tokenFile: a request has one of them", "remove basicAuth or tokenFile")


def credentials_have_tls(document: DocumentPart) -> Iterator[Problem]:
    """`nodes.sources[].prometheus.url`: refuse http with `tokenFile` or `basicAuth`, but to the extender's own Pod."""
    for source in document.select("nodes", "sources", "*", "prometheus"):
        url, used = source.get("url"), [name for name in _CREDENTIALS if source.get(name) is not None]
        if url is not None and used and _is_open(url):
            remedy = f"use https, and caFile, or remove {used[0]}"
            yield url.report(f"without TLS, {used[0]} would be readable on the way", remedy)


def load_has_a_source(document: DocumentPart) -> Iterator[Problem]:
    """`scheduling.hot`, `pressure`, `whenUnknown`: only with the stanza `nodes`. Refuse them without."""
    if document.get("nodes") is not None:
        return
    for scheduling in document.select("services", "*", "scheduling"):
        for name in MEASURED:
            part = scheduling.get(name)
            if part is not None and not part.is_empty:
                remedy = "add nodes with a source, such as nodes: {sources: [{metricsAPI: {}}]}, or remove it"
                yield part.report_field("needs the load of nodes, and the policy names no source of it", remedy)


def prometheus_has_tls(document: DocumentPart) -> Iterator[Problem]:
    """`nodes.sources[].prometheus.url`: warn about http, which has no TLS, but to a proxy in the extender's own Pod."""
    for url in document.select("nodes", "sources", "*", "prometheus", "url"):
        if _is_open(url):
            yield url.report("without TLS, anyone on the way can move Pods to other nodes", "use https, and caFile")


def credentials_are_mounted(document: DocumentPart) -> Iterator[Problem]:
    """`nodes.sources[].prometheus.tokenFile`, `basicAuth`: warn about files that are not sent by default."""
    for source in document.select("nodes", "sources", "*", "prometheus"):
        user = source.get("basicAuth")
        files = [source.get("tokenFile"), *(user.get(name) for name in _USER_FILES if user is not None)]
        for file in files:
            if file is not None and not normpath(str(file.node.value)).startswith(f"{PROMETHEUS_FILES}/"):
                remedy = "put it into Secret podgate-prometheus, or start the extender with --prometheus-files"
                yield file.report(f"the extender sends only files below {PROMETHEUS_FILES}", remedy)


def _is_open(url: DocumentPart) -> bool:
    """Return whether others can read what is sent to a URL."""
    text = str(url.node.value)
    return text.startswith("http://") and not _IN_OWN_POD.match(text)


def pressures_are_measured(document: DocumentPart) -> Iterator[Problem]:
    """`scheduling.pressure.memory`, `io`: warn about a pressure that no source measures."""
    sources = document.select("nodes", "sources", "*")
    if not sources:
        return  # `load_has_a_source` rejects it
    measured = {name for source in sources for name in _PRESSURES if _measures(source, name)}
    for pressure in document.select("services", "*", "scheduling", "pressure"):
        for name, part in pressure.fields().items():
            if name in _PRESSURES and name not in measured:
                profiles = " or ".join(known for known in Profile if known in PROFILES_WITH_PRESSURE)
                remedy = f"use a prometheus source with profile {profiles}, or with queries.{name}Pressure"
                yield part.report_field("refuses no node: no source of nodes.sources measures it", remedy)


def risk_is_measured(document: DocumentPart) -> Iterator[Problem]:
    """`scheduling.score.risk`: warn about a weight without a Prometheus, and about one above 0."""
    sources = document.select("nodes", "sources", "*")
    for part in document.select("services", "*", "scheduling", "score", "risk"):
        weight = part.read(Number)
        if weight and not any(source.get("prometheus") for source in sources):
            remedy = "add a prometheus source: the others measure no deviation"
            yield part.report("no source of nodes.sources measures how load varies", remedy)
        elif weight > 0:
            yield part.report("nodes with a larger risk are preferred", f"write {-weight:g}, or remove it")


def _measures(source: DocumentPart, name: str) -> bool:
    prometheus = source.get("prometheus")
    if prometheus is None:
        return False
    profile = prometheus.get("profile")
    has_profile = profile is None or profile.read(Profile) in PROFILES_WITH_PRESSURE
    return has_profile or prometheus.get("queries", f"{name}Pressure") is not None


def thresholds_are_meant(service: DocumentPart) -> Iterator[Problem]:
    """`scheduling.hot.cpu`, `memory`: warn about less than 0.3. `scheduling.pressure.cpu`: warn about any value."""
    for name in ("cpu", "memory"):
        part = service.get("scheduling", "hot", name)
        if part is not None and part.read(Number) < _LOW:
            yield part.report(
                "most nodes are above this", f"write {_LOW} or more, such as 0.8: it is a share, not a percentage"
            )
    part = service.get("scheduling", "pressure", "cpu")
    if part is not None:
        yield part.report_field("tasks wait for cpu on every busy node, with no harm", "use hot.cpu, or remove it")


def something_is_decided(service: DocumentPart) -> Iterator[Problem]:
    """`scheduling`: warn about a stanza that refuses no node, and writes no order of nodes either."""
    scheduling = service.get("scheduling")
    if scheduling is None:
        return
    parts = [part for name in _DECIDING if (part := scheduling.get(name)) is not None]
    if all(part.node.value in _DECIDING_NOTHING for part in parts):
        remedy = "write hot, such as hot: {cpu: 0.8}; or score: {cpu: 0.4}, if it is to choose among nodes only"
        yield scheduling.report_field("refuses no node, however hot", remedy)


def own_demand_counts(service: DocumentPart) -> Iterator[Problem]:
    """`scheduling.hot.ownDemand`: warn about `false`, and about any value without a threshold beside it."""
    hot = service.get("scheduling", "hot")
    part = None if hot is None else hot.get("ownDemand")
    if hot is None or part is None:
        return
    if not hot.fields().keys() & {"cpu", "memory", "combined"}:
        yield part.report_field(
            "refuses no node: it counts below a threshold", "add hot.cpu or hot.memory, or remove it"
        )
    elif not part.read(bool):
        reason = "a node below a threshold takes a Pod of any size, and may end far above it"
        yield part.report(reason, "remove it, unless estimates are far above what Pods use")


def pods_reach_the_extender(service: DocumentPart) -> Iterator[Problem]:
    """`scheduling`: warn about the stanza without `placement.schedulerName`."""
    scheduling = service.get("scheduling")
    if scheduling is not None and service.get("placement", "schedulerName") is None:
        remedy = "add placement.schedulerName, such as podgate-scheduler, unless the default scheduler has the extender"
        yield scheduling.report_field(
            "acts in a scheduler with Podgate's extender, and no schedulerName is set", remedy
        )
