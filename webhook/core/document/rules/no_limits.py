"""Rules of `container.remove` and `container.forbid`: nothing else of the service sets or needs such a limit."""

from collections.abc import Iterator

from webhook.core.document.rules.resources import select_amounts, select_no_limits
from webhook.core.document.yaml.parts import DocumentPart
from webhook.core.document.yaml.problems import Problem
from webhook.core.policy.model import Modes
from webhook.core.policy_fields import Mode, QosClass
from webhook.core.quota import canonicalize

_LIMITING = (
    ("container", "default", "sets a limit"),
    ("container", "defaultLimitRatio", "sets a limit"),
    ("container", "max", "becomes the limit of a container without one"),
    ("container", "maxLimitRequestRatio", "requires a limit"),
    ("container", "defaultRequestRatio", "is a share of the limit"),
    ("initContainer", "default", "sets a limit"),
    ("initContainer", "max", "becomes the limit of an init container without one"),
    ("pod", "maxLimitRequestRatio", "requires a limit"),
)
_HARD = (
    ("quota", "windows", "*", "hard"),
    ("quota", "standing", "hard"),
    ("quota", "schedules", "*", "hard"),
    ("quota", "schedules", "*", "windows", "*", "hard"),
    ("quota", "schedules", "*", "standing", "hard"),
)


def no_limit_is_set(service: DocumentPart) -> Iterator[Problem]:
    """`container.remove`, `forbid`: resources without a default limit, `max` or ratio.

    Refuse a resource that has one, and one in both lists.
    """
    for resource, (word, listed) in select_no_limits(service).items():
        for owner, field, does in _LIMITING:
            part = select_amounts(service, field, of=owner).get(resource)
            if part is not None:
                reason = f"{does}, and container.{word} in line {listed.node.line} allows none of {resource}"
                yield part.report_field(reason, "keep one of the two")
    removals, refused = (
        {part.read(str): part for part in service.select("resources", "container", word, "*")}
        for word in ("remove", "forbid")
    )
    for name in removals.keys() & refused.keys():
        reason = f"container.remove in line {removals[name].node.line} takes it out before"
        yield refused[name].report(reason, "keep one of the two")


def guaranteed_pods_have_limits(service: DocumentPart) -> Iterator[Problem]:
    """`pod.qosClasses`: refuse Guaranteed alone beside `container.remove` or `forbid` of cpu."""
    found = select_no_limits(service).get("cpu")
    for part in service.select("resources", "pod", "qosClasses"):
        if found is not None and set(part.read(list[str])) == {QosClass.GUARANTEED}:
            word, listed = found
            reason = (
                f"containers without a limit of cpu are not Guaranteed (container.{word} in line {listed.node.line})"
            )
            yield part.report_field(reason, f"add Burstable, or take limits.cpu out of container.{word}")


def counted_limits_are_there(service: DocumentPart) -> Iterator[Problem]:
    """`hard` of `quota`, also in `schedules`: warn about a limit that `container.remove` or `forbid` leaves out."""
    modes = service.get("modes")
    if (Modes() if modes is None else modes.read(Modes)).resources is not Mode.ENFORCE:
        return
    counted = {f"limits.{resource}": found for resource, found in select_no_limits(service).items()}
    for path in _HARD if counted else ():
        for hard in service.select(*path):
            for name, part in hard.fields().items():
                if canonicalize(name) in counted:
                    word, listed = counted[canonicalize(name)]
                    resource = canonicalize(name).removeprefix("limits.")
                    reason = (
                        f"counts no container: container.{word} in line {listed.node.line} leaves none of these limits"
                    )
                    yield part.report_field(reason, f"write requests.{resource} instead")
