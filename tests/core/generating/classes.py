"""Priority, runtime class and scheduler of a Pod, as earlier admission plugins set them."""

from hypothesis import strategies as st

from tests.core.generating.vocabulary import (
    GLOBAL_DEFAULT,
    OUR_PRIORITY,
    OUR_RUNTIME,
    OUR_SCHEDULER,
    PRIORITY_CLASSES,
    RUNTIME_CLASSES,
    THEIR_PRIORITY,
    THEIR_RUNTIME,
    THEIR_SCHEDULER,
    Json,
    PodStyle,
)

_NEVER = {OUR_PRIORITY: "Never"}
schedulers = st.sampled_from(["default-scheduler", "default-scheduler", OUR_SCHEDULER, THEIR_SCHEDULER])


def build_manager(*fields: str, with_look_alikes: bool = False) -> Json:
    """Return an entry of managedFields whose manager set `fields` of the spec.

    `with_look_alikes`: it also has a label and an annotation with the names of such fields.
    """
    look_alike: Json = {f"f:{field}": {} for field in ("priorityClassName", "schedulerName")}
    metadata = {"f:labels": {"f:app": {}, **(look_alike if with_look_alikes else {})}}
    if with_look_alikes:
        metadata["f:annotations"] = look_alike
    return {
        "manager": "kubectl-create",
        "operation": "Update",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": metadata, "f:spec": {"f:containers": {}, **{f"f:{field}": {} for field in fields}}},
    }


def priority_fields(name: str, *, filled: bool) -> Json:
    """Return the fields of a class: its name only, as users write it, or, if `filled`, all that the plugin sets."""
    if not filled:
        return {"priorityClassName": name} if name else {}
    policy = _NEVER.get(name, "PreemptLowerPriority")
    value = PRIORITY_CLASSES.get(name, 0)
    return {**({"priorityClassName": name} if name else {}), "priority": value, "preemptionPolicy": policy}


@st.composite
def priorities(draw: st.DrawFn, style: PodStyle) -> tuple[Json, list[Json] | None]:
    """Draw a priority, and the managedFields that distinguish the user's choice from the cluster's default."""
    if style.strict:
        return priority_fields(draw(st.sampled_from(["", OUR_PRIORITY, THEIR_PRIORITY])), filled=False), None
    with_look_alikes = draw(st.booleans())
    entries = [build_manager(with_look_alikes=with_look_alikes), {"manager": "other", "subresource": "status"}]
    chosen = draw(st.sampled_from([OUR_PRIORITY, THEIR_PRIORITY, GLOBAL_DEFAULT]))
    match draw(st.sampled_from(["file", "none", "empty", "default", "own", "own"])):
        case "file":
            return priority_fields(chosen, filled=False), None
        case "none":
            return priority_fields("", filled=True), draw(st.sampled_from([None, entries]))
        case "empty":
            return {"priorityClassName": draw(st.sampled_from(["", None])), "priority": None}, None
        case "default":
            return priority_fields(GLOBAL_DEFAULT, filled=True), entries
        case _:
            with_class = [*entries, build_manager("priorityClassName", with_look_alikes=with_look_alikes)]
            return priority_fields(chosen, filled=True), draw(st.sampled_from([None, with_class]))


@st.composite
def runtimes(draw: st.DrawFn, style: PodStyle) -> Json:
    """Draw a runtime class, and the overhead that its plugin has filled in."""
    name = draw(st.sampled_from([None, None, OUR_RUNTIME, THEIR_RUNTIME]))
    if name is None:
        return {} if style.strict or draw(st.booleans()) else {"runtimeClassName": None, "overhead": None}
    if style.strict or draw(st.booleans()):
        return {"runtimeClassName": name}
    return {"runtimeClassName": name, "overhead": RUNTIME_CLASSES[name]}
