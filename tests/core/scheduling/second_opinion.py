"""Second implementation of the rules of nodes, straight from the page, with exact fractions and no shared code."""

from fractions import Fraction
from typing import Any

Json = dict[str, Any]


def is_refused(node: Json, rules: Json) -> bool:
    """Return whether a node is refused. Absent measurements refuse nothing."""
    load = node.get("load")
    is_measured = load is not None and load["source"] != "requests"
    if rules.get("whenUnknown") == "Refuse" and not is_measured:
        return True
    known = {name: share for name in ("cpu", "memory") if (share := compute_used_share(node, name)) is not None}
    if len(known) == 2:
        known["combined"] = Fraction(float(known["cpu"]) + float(known["memory"]))  # 1 and a trace of cpu are 1
    for name, limit in rules.get("hot", {}).items():
        if is_measured and name in known and known[name] > Fraction(limit):
            return True
    for name, limit in rules.get("pressure", {}).items():
        value = (load or {}).get(f"{name}_pressure")
        if value is not None and Fraction(value) > Fraction(limit):
            return True
    return False


def compute_used_share(node: Json, resource: str, more: float = 0.0) -> Fraction | None:
    load = node.get("load")
    if load is None or load[resource] is None:
        return None
    if not node[resource]:
        return Fraction(1)
    return (Fraction(load[resource]) + Fraction(node["assumed"][resource]) + Fraction(more)) / Fraction(node[resource])


def compute_score(node: Json, asked: Json, weights: Json, near: float) -> Fraction:
    """Return the score before rounding."""
    terms = {"latency": Fraction(0), "topology": Fraction(near)}
    for name in ("cpu", "memory"):
        used = compute_used_share(node, name, asked[name])
        terms[name] = Fraction(1, 2) if used is None else min(Fraction(1), max(Fraction(0), 1 - used))
    seconds = (node.get("load") or {}).get("latency")
    if seconds is not None:
        terms["latency"] = min(Fraction(1), Fraction(seconds) / Fraction(0.5))
    values = {name: Fraction(value) for name, value in weights.items()}
    worst = sum((value for value in values.values() if value < 0), Fraction(0))
    best = sum((value for value in values.values() if value > 0), Fraction(0))
    if best == worst:
        return Fraction(0)
    return 10 * (sum(values[name] * terms[name] for name in values) - worst) / (best - worst)
