"""Second implementation of the rules of nodes, straight from the page, with exact fractions and no shared code."""

from fractions import Fraction
from typing import Any

Json = dict[str, Any]


def is_refused(node: Json, rules: Json, asked: Json) -> bool:
    """Return whether a node is refused. Absent measurements refuse nothing."""
    load = node.get("load")
    is_measured = load is not None and load["source"] != "requests"
    if rules.get("whenUnknown") == "Refuse" and not is_measured:
        return True
    if any(excess > 0 for excess in list_excesses(node, rules, asked)):
        return True
    for name, limit in rules.get("pressure", {}).items():
        value = (load or {}).get(f"{name}_pressure")
        if value is not None and Fraction(value) > Fraction(limit):
            return True
    return False


def list_excesses(node: Json, rules: Json, asked: Json) -> list[Fraction]:
    """Return by how much a node is above each threshold that is written; below 0: it is not."""
    load = node.get("load")
    if load is None or load["source"] == "requests":
        return []
    used = {name: share for name in ("cpu", "memory") if (share := compute_used_share(node, name)) is not None}
    own = {name: Fraction(asked[name]) / Fraction(node[name]) if node[name] else Fraction(0) for name in asked}
    if len(used) == 2:
        used["combined"], own["combined"] = used["cpu"] + used["memory"], own["cpu"] + own["memory"]
    counts = Fraction(rules.get("ownDemand", True))
    return [
        used[name] + counts * min(own[name], Fraction(limit) / 2) - Fraction(limit)
        for name, limit in rules.get("hot", {}).items()
        if name in used
    ]


def compute_used_share(node: Json, resource: str, more: float = 0.0) -> Fraction | None:
    load = node.get("load")
    if load is None or load[resource] is None:
        return None
    if not node[resource]:
        return Fraction(1)
    return (Fraction(load[resource]) + Fraction(node["assumed"][resource]) + Fraction(more)) / Fraction(node[resource])


def compute_risk(node: Json, asked: Json, risk: Json) -> Fraction:
    """Return the larger risk of cpu and memory; of what is not measured there is none."""
    found = [Fraction(0)]
    for name in ("cpu", "memory"):
        used = compute_used_share(node, name, asked[name])
        if used is not None:
            deviation = Fraction(node["load"][f"{name}_deviation"] or 0) / Fraction(node[name]) if node[name] else 1
            spread = risk["margin"] * float(min(1, deviation)) ** (1 / risk["sensitivity"])
            found.append((min(Fraction(1), used) + min(Fraction(1), Fraction(spread))) / 2)
    return max(found)


def compute_score(node: Json, asked: Json, weights: Json, near: float, risk: Json) -> Fraction:
    """Return the score before rounding."""
    terms = {"latency": Fraction(0), "topology": Fraction(near), "risk": compute_risk(node, asked, risk)}
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
