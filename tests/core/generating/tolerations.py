"""Tolerations with every operator and effect; seconds only where they are valid."""

from hypothesis import strategies as st

from tests.core.generating.vocabulary import UNKNOWN_FIELD, Json, PodStyle

_KEYS = st.sampled_from(["gpu", "node.kubernetes.io/not-ready"])
_EFFECTS = st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"])
_ANY_OPERATOR = st.sampled_from([None, "", "Equal", "Exists", "Lt", "Gt"])
_STABLE_OPERATOR = st.sampled_from([None, "Equal", "Exists"])
"""Lt and Gt are behind a feature gate that is off by default."""

FILLED_IN: list[Json] = [
    {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for name in ("not-ready", "unreachable")
]
"""What the API server adds to each Pod."""


@st.composite
def tolerations(draw: st.DrawFn, style: PodStyle) -> Json:
    operator = draw(_STABLE_OPERATOR if style.strict else _ANY_OPERATOR)
    found: Json = {} if operator is None else {"operator": operator}
    if operator != "Exists" or draw(st.booleans()):
        found["key"] = draw(_KEYS)
    if operator in {"Lt", "Gt"}:
        found["value"] = draw(st.sampled_from(["5", "4", "8"]))
    elif operator != "Exists" and draw(st.booleans()):
        found["value"] = draw(st.sampled_from(["a", "b", ""]))
    effect = draw(st.none() | _EFFECTS)
    if effect is not None:
        found["effect"] = effect
    if effect == "NoExecute" and draw(st.booleans()):
        found["tolerationSeconds"] = draw(st.sampled_from([-1, 0, 300, 3600]))
    if not style.strict and draw(st.sampled_from([False, False, False, False, True])):
        found[UNKNOWN_FIELD] = True
    return found
