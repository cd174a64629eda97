"""Names and values of generated Pods and policies: few, so that they often match, imply or conflict."""

from typing import Any, NamedTuple

from hypothesis import strategies as st

Json = dict[str, Any]
Strings = st.SearchStrategy[str]

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
OUR_LABEL = "podgate.io/service"
OUR_ANNOTATION = "podgate.io/policy-hash"
HASH = "0123456789abcdef"
SERVICE = "s"
NAMESPACE = "shop"

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

NODE_KEYS = (ZONE, REGION, "disk", "a/b")
HOME = "2"
"""Every required label of a policy may have this value on a node: so no policy contradicts itself."""
NODE_VALUES = ("1", HOME, "3", "")
NODE_NAMES = ("n1", "n2")

PRIORITY_CLASSES = {"payments-high": 1000, "batch-low": -5, "cluster-default": 7}
GLOBAL_DEFAULT = "cluster-default"
OUR_PRIORITY, THEIR_PRIORITY = "payments-high", "batch-low"
RUNTIME_CLASSES: dict[str, dict[str, str]] = {"gvisor": {"cpu": "50m", "memory": "64Mi"}, "kata": {"cpu": "250m"}}
OUR_RUNTIME, THEIR_RUNTIME = "gvisor", "kata"
OUR_SCHEDULER, THEIR_SCHEDULER = "podgate-scheduler", "their-scheduler"


NAMESPACE_LABELS = {"team": "t1"}
"""Labels of NAMESPACE."""
QUEUE, OUR_QUEUE, THEIR_QUEUE = "queue", "prod", "theirs"
"""A label and annotation that a policy sets."""


class PodStyle(NamedTuple):
    """The kind of Pods to generate.

    `strict`: only what a real API server accepts from a user. Otherwise also what only it sends or what a file
    may contain: nulls, unknown fields, values that are invalid in labels.
    """

    strict: bool
    keys: Strings
    values: Strings


ODD = PodStyle(
    strict=False,
    keys=st.sampled_from([*NODE_KEYS, "odd.io/a~1b~0c", "odd.io/~"]),
    values=st.sampled_from([*NODE_VALUES, "02", "é\u2028"]),
)
REAL = PodStyle(strict=True, keys=st.sampled_from(NODE_KEYS), values=st.sampled_from(NODE_VALUES))


class Concern(NamedTuple):
    """The only fields of a Pod and a policy, so that both set them more often.

    `fields`: of a Pod's spec and of a placement. `kinds`: of affinity.
    """

    fields: tuple[str, ...]
    kinds: tuple[str, ...] = ()


KINDS = ("nodeAffinity", "podAffinity", "podAntiAffinity")
TENANTS_CONCERNS = (
    Concern(("labels", "annotations")),
    Concern(
        (
            *("allow", "tolerations", "tolerationsByQosClass", "nodeSelector"),
            *("schedulerName", "priorityClassName", "runtimeClassName"),
        )
    ),
    Concern(("affinity", "topologySpreadConstraints"), KINDS[2:]),
)
"""Labels for other schedulers, what a Pod may bring, and what it keeps by `ifAbsent`."""
TOLERATIONS = Concern(("allow", "tolerations", "tolerationsByQosClass"))
CONCERNS = (
    *[Concern(("affinity", "topology"), KINDS[:1])] * 3,  # the most complex fields
    Concern(("affinity", "topology", "nodeSelector"), KINDS[:1]),
    Concern(("affinity",), KINDS[1:]),
    Concern(("topologySpreadConstraints",)),
    Concern(("tolerations", "tolerationsByQosClass")),
    Concern(("schedulerName", "priorityClassName", "runtimeClassName", "nodeSelector")),
    *TENANTS_CONCERNS[:2],
)

UNKNOWN_FIELD = "fieldOfTomorrow"
_UNKNOWN_VALUES = st.sampled_from([*[None] * 12, {"a~b/c": [1, 2.5, None, "é\u2028"]}, True])


def draw_fields(**optional: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """Build an object whose fields may each be absent, null, or present."""
    return st.fixed_dictionaries({}, optional={name: st.none() | value for name, value in optional.items()})


_PRESENCE = {
    True: st.sampled_from(["absent", *["there"] * 3]),
    False: st.sampled_from(["absent", *["there"] * 5, "null"]),
}
"""Most fields are present, to test more. Absent comes first, so that Hypothesis shrinks to few fields."""


@st.composite
def draw_object(
    draw: st.DrawFn,
    style: PodStyle,
    required: dict[str, st.SearchStrategy[Any]],
    optional: dict[str, st.SearchStrategy[Any]],
) -> Json:
    """Build an object; one that is not strict has nulls and unknown fields.

    A field in both is required.
    """
    found = {name: draw(value) for name, value in required.items()}
    for name, value in optional.items():
        presence = draw(_PRESENCE[style.strict]) if name not in required else "absent"
        if presence != "absent":
            found[name] = draw(value) if presence == "there" else None
    if not style.strict:
        unknown = draw(_UNKNOWN_VALUES)
        if unknown is not None:
            found[UNKNOWN_FIELD] = unknown
    return found
