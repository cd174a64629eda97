"""Rules of `quota` and of the limits of `pools`: lengths, exact amounts, surge, queue and denial."""

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from operator import itemgetter

from webhook.core.document.yaml.parts import DocumentPart, stop_at_invalid
from webhook.core.document.yaml.problems import Problem
from webhook.core.kubernetes.quantity import Duration, Quantity
from webhook.core.policy.model import Modes
from webhook.core.policy_fields import Mode, OnOverload, WhenExceeded, WhenOpen
from webhook.core.quota import EXACT_AMOUNT_MAX, canonicalize

_LIMITED = (
    ("services", "*", "quota", "windows", "*", "hard"),
    ("services", "*", "quota", "standing", "hard"),
    ("services", "*", "guaranteed", "windows", "*", "hard"),
    ("services", "*", "guaranteed", "standing", "hard"),
    ("services", "*", "quota", "schedules", "*", "hard"),
    ("services", "*", "quota", "schedules", "*", "windows", "*", "hard"),
    ("services", "*", "quota", "schedules", "*", "standing", "hard"),
    ("pools", "*", "windows", "*", "hard"),
    ("pools", "*", "standing", "hard"),
)
_PROGRESS_US = 600_000_000
"""A Deployment's default progressDeadlineSeconds."""
_WINDOWS = (
    ("services", "*", "quota", "windows"),
    ("services", "*", "guaranteed", "windows"),
    ("pools", "*", "windows"),
)
_ALL_WINDOWS = (*_WINDOWS, ("services", "*", "quota", "schedules", "*", "windows"))


def windows_differ(document: DocumentPart) -> Iterator[Problem]:
    """`windows[].window` of `quota`, `schedules`, `pools`: each length once. Refuse equal ones, such as 60s and 1m."""
    for windows in _select_once(document, _ALL_WINDOWS):
        first: dict[Duration, DocumentPart] = {}
        for window in windows.select("*", "window"):
            length = window.read(Duration)
            if length in first:
                there = first[length].node
                reason = f"the same length as the window {there.shown} in line {there.line}"
                yield window.report(reason, "put both limits under one window")
            first.setdefault(length, window)


def amounts_are_exact(document: DocumentPart) -> Iterator[Problem]:
    """`hard`: each resource once, in whole units (thousandths of a core) up to 2^53.

    Refuse two names of one resource (`cpu`, `requests.cpu`), fractions and larger amounts.
    """
    for hard in _select_once(document, _LIMITED):
        counted: dict[str, DocumentPart] = {}
        for resource, part in hard.fields().items():
            name = _name_counter(resource)
            if name in counted:
                reason = f"counts the same as the field in line {counted[name].node.key_line}"
                yield part.report_field(reason, "keep one of the two")
            counted.setdefault(name, part)
            yield from stop_at_invalid(_check_exact(resource, part))


def _name_counter(resource: str) -> str:
    return f"requests.{resource}" if resource.startswith("hugepages-") else canonicalize(resource)


def _check_exact(resource: str, part: DocumentPart) -> Iterator[Problem]:
    value = part.read(Quantity).value
    units, finest = (value * 1000, "1m") if canonicalize(resource).endswith(".cpu") else (value, "1")
    if units > EXACT_AMOUNT_MAX:
        yield part.report("above 2^53, beyond which counters are not exact", "write a smaller limit, or remove it")
    elif units.denominator != 1:
        hint = " (m means thousandths: was M or Mi meant?)" if part.node.text.endswith("m") and finest == "1" else ""
        yield part.report(
            f"finer than {finest}, the smallest unit that is counted{hint}", f"write a multiple of {finest}"
        )


def a_quota_limits_something(service: DocumentPart) -> Iterator[Problem]:
    """`quota`: `windows` or `standing`, or a `pool`. Refuse a stanza that limits nothing."""
    quota = service.get("quota")
    if quota is None or service.get("pool") is not None or quota.get("standing") is not None:
        return
    windows = quota.get("windows")
    if windows is None or windows.is_empty:
        yield quota.report_field("limits nothing", "add windows or standing, or remove quota")


def surge_has_its_measure(service: DocumentPart) -> Iterator[Problem]:
    """`quota.standing.surge`: a percentage, or a number of Pods beside `hard.pods`. Refuse a number without it."""
    surge, hard = service.get("quota", "standing", "surge"), service.get("quota", "standing", "hard")
    if surge is None or hard is None or isinstance(surge.node.value, str):
        return
    if surge.read(int) and hard.get("pods") is None:
        yield surge.report(
            "a count is a number of Pods, and hard has no pods", "write a percentage, or add pods to hard"
        )


def waiting_has_its_rules(service: DocumentPart) -> Iterator[Problem]:
    """`quota.whenExceeded`: Queue only with `quota.queue`. Refuse it without."""
    quota = service.get("quota")
    if quota is None:
        return
    exceeded = quota.get("whenExceeded")
    if exceeded is not None and exceeded.read(WhenExceeded) is WhenExceeded.QUEUE and quota.get("queue") is None:
        yield exceeded.report("there is no queue stanza", "add `queue: {}` to take its defaults")


def longer_windows_can_bind(document: DocumentPart) -> Iterator[Problem]:
    """`windows[].hard`: warn about a limit of a shorter window that a longer window keeps from being reached."""
    for windows in _select_once(document, _WINDOWS):
        yield from stop_at_invalid(_check_can_bind(windows))


def _check_can_bind(windows: DocumentPart) -> Iterator[Problem]:
    rows: list[tuple[Fraction, str, Mapping[str, DocumentPart]]] = []
    for window in windows.items():
        length, hard = window.get("window"), window.get("hard")
        if length is not None and hard is not None:
            rows.append((length.read(Duration).value, length.node.shown, hard.fields()))
    least: dict[str, tuple[Fraction, str]] = {}
    for _, name, limits in sorted(rows, key=itemgetter(0), reverse=True):
        for resource, part in limits.items():
            value = part.read(Quantity).value
            longer = least.get(resource)
            if longer is None or value < longer[0]:
                least[resource] = value, f"the window {name} allows {part.node.shown} in all"
            else:
                yield part.report(f"never reached: {longer[1]}", "lower it, or raise the longer window's")


def _select_once(document: DocumentPart, paths: Iterable[tuple[str, ...]]) -> Iterator[DocumentPart]:
    """Yield each part once, however many services inherit it from `defaults` or an alias."""
    seen: set[int] = set()
    for path in paths:
        for part in document.select(*path):
            if id(part.node.value) not in seen:
                seen.add(id(part.node.value))
                yield part


def a_queue_is_used(service: DocumentPart) -> Iterator[Problem]:
    """`quota.queue`: warn about it without `whenExceeded: Queue`, `whenOpen: Queue` and `onOverload: Gate`."""
    quota = service.get("quota")
    if quota is None:
        return
    queue, exceeded, opened = quota.get("queue"), quota.get("whenExceeded"), service.get("breaker", "whenOpen")
    waits = exceeded is not None and exceeded.read(WhenExceeded) is WhenExceeded.QUEUE
    waits = waits or (opened is not None and opened.read(WhenOpen) is WhenOpen.QUEUE)
    overload = queue.get("onOverload") if queue is not None else None
    waits = waits or (overload is not None and overload.read(OnOverload) is OnOverload.GATE)
    if queue is not None and not queue.is_empty and not waits:
        remedy = "write whenExceeded: Queue, whenOpen: Queue or onOverload: Gate, or remove it"
        yield queue.report_field("without effect", remedy)


def only_enforced_pods_wait(service: DocumentPart) -> Iterator[Problem]:
    """`quota.whenExceeded`, `breaker.whenOpen`: warn about any value but Deny if the mode is Warn or Audit."""
    modes = service.get("modes")
    found = Modes() if modes is None else modes.read(Modes)
    for stanza, field, mode in (("quota", "whenExceeded", found.quota), ("breaker", "whenOpen", found.breaker)):
        part = service.get(stanza, field)
        if part is not None and part.read(str) != "Deny" and mode in {Mode.WARN, Mode.AUDIT}:
            remedy = f"expect its effect with modes.{stanza}: Enforce"
            yield part.report(f"without effect while modes.{stanza} is {mode}, which changes no Pod", remedy)


def deployments_outlast_the_wait(service: DocumentPart) -> Iterator[Problem]:
    """`quota.queue.maxWait`: warn about a written value above 10m, the default deadline of a Deployment."""
    queue, exceeded = service.get("quota", "queue", "maxWait"), service.get("quota", "whenExceeded")
    if queue is None or exceeded is None or exceeded.read(WhenExceeded) is not WhenExceeded.QUEUE:
        return
    if queue.read(Duration).us > _PROGRESS_US:
        yield queue.report(
            "a Deployment reports ProgressDeadlineExceeded when its Pods wait for 10m without progress",
            "set progressDeadlineSeconds of its Deployments above maxWait, or write at most 10m",
        )


def retry_after_can_be_sent(service: DocumentPart) -> Iterator[Problem]:
    """`quota.denial.retryAfter`: warn about Users with `status: 403`, which clients do not retry."""
    for denial in service.select("quota", "denial"):
        status, retry = denial.get("status"), denial.get("retryAfter")
        if status and retry and status.read(int) == 403 and retry.read(str) == "Users":  # noqa: PLR2004  HTTP's Forbidden
            yield retry.report_field("clients do not retry a 403", "write status: 429, or retryAfter: Never")


def namespaces_share_one_breaker(service: DocumentPart) -> Iterator[Problem]:
    """`quota.per`: warn about any value but Service beside an enforced breaker, which all namespaces share."""
    per, breaker, modes = service.get("quota", "per"), service.get("breaker"), service.get("modes")
    enforced = (Modes() if modes is None else modes.read(Modes)).breaker is Mode.ENFORCE
    if per is not None and per.node.value != "Service" and breaker is not None and enforced:
        who, one = ("namespaces", "namespace") if per.node.value == "Namespace" else ("teams", "team")
        reason = f"{who} have counters of their own, but share the service's one breaker"
        remedy = f"expect one {one} to open it for all, or set modes.breaker: Audit"
        yield per.report_field(reason, remedy)
