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
    Taste,
)

_NEVER = {OUR_PRIORITY: "Never"}
schedulers = st.sampled_from(["default-scheduler", "default-scheduler", OUR_SCHEDULER, THEIR_SCHEDULER])


def managed(*fields: str, odd: bool = False) -> Json:
    """Return an entry of managedFields by which somebody set `fields` of the spec.

    `odd`: he also has a label and an annotation whose names look like them.
    """
    look_alike: Json = {f"f:{field}": {} for field in ("priorityClassName", "schedulerName")}
    metadata = {"f:labels": {"f:app": {}, **(look_alike if odd else {})}}
    if odd:
        metadata["f:annotations"] = look_alike
    return {
        "manager": "kubectl-create",
        "operation": "Update",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": metadata, "f:spec": {"f:containers": {}, **{f"f:{field}": {} for field in fields}}},
    }


def priority_fields(name: str, *, filled: bool) -> Json:
    """Return what a Pod of a class has: the name alone as users write it, else what the plugin makes of it."""
    if not filled:
        return {"priorityClassName": name} if name else {}
    policy = _NEVER.get(name, "PreemptLowerPriority")
    value = PRIORITY_CLASSES.get(name, 0)
    return {**({"priorityClassName": name} if name else {}), "priority": value, "preemptionPolicy": policy}


@st.composite
def priorities(draw: st.DrawFn, taste: Taste) -> tuple[Json, list[Json] | None]:
    """Draw a priority, and the managedFields that tell the user's own choice from the cluster's."""
    if taste.strict:
        return priority_fields(draw(st.sampled_from(["", OUR_PRIORITY, THEIR_PRIORITY])), filled=False), None
    odd = draw(st.booleans())
    entries = [managed(odd=odd), {"manager": "other", "subresource": "status"}]
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
            named = [*entries, managed("priorityClassName", odd=odd)]
            return priority_fields(chosen, filled=True), draw(st.sampled_from([None, named]))


@st.composite
def runtimes(draw: st.DrawFn, taste: Taste) -> Json:
    """Draw a runtime class, and the overhead that its plugin has filled in."""
    name = draw(st.sampled_from([None, None, OUR_RUNTIME, THEIR_RUNTIME]))
    if name is None:
        return {} if taste.strict or draw(st.booleans()) else {"runtimeClassName": None, "overhead": None}
    if taste.strict or draw(st.booleans()):
        return {"runtimeClassName": name}
    return {"runtimeClassName": name, "overhead": RUNTIME_CLASSES[name]}
