"""Sparklines: counts over time as the points of an SVG polyline."""

from collections.abc import Sequence

WIDTH, HEIGHT = 90, 20
_INSET = 2
"""Keeps the stroke within the picture."""


def draw_points(counts: Sequence[int]) -> str:
    """Return the points, the oldest at the left; the highest count reaches the top."""
    highest, room = max(1, *counts), HEIGHT - 2 * _INSET
    step = (WIDTH - 2 * _INSET) / max(1, len(counts) - 1)
    places = ((_INSET + index * step, HEIGHT - _INSET - room * count / highest) for index, count in enumerate(counts))
    return " ".join(f"{x:.3g},{y:.3g}" for x, y in places)
