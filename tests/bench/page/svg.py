"""Line charts as SVG: categories on the x axis, and for each point the median with its extremes."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 20, 64, 48
_COLOURS = ("#0969da", "#bc4c00", "#1a7f37", "#8250df")
_TICKS = 4


@dataclass(frozen=True)
class Line:
    """One line: (low, median, high) for each category."""

    name: str
    points: Sequence[tuple[float, float, float]]


@dataclass(frozen=True)
class Chart:
    """A chart; its y axis begins at zero."""

    title: str
    x_title: str
    y_title: str
    categories: Sequence[str]
    lines: Sequence[Line]

    def svg(self) -> str:
        top = _round_up(max(high for line in self.lines for _, _, high in line.points))
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
            _text(WIDTH / 2, 20, self.title, weight="bold"),
            _text(WIDTH / 2, HEIGHT - 8, self.x_title),
            _text(_LEFT, 56, self.y_title, anchor="start"),
        ]
        for tick in range(_TICKS + 1):
            value = top * tick / _TICKS
            at = _y(value, top)
            parts.append(f'<path d="M{_LEFT} {at:.1f}H{WIDTH - _RIGHT}" stroke="#d0d7de"/>')
            parts.append(_text(_LEFT - 8, at + 4, f"{value:g}", anchor="end"))
        for number, category in enumerate(self.categories):
            parts.append(_text(self._x(number), HEIGHT - _BOTTOM + 18, category))
        for number, line in enumerate(self.lines):
            parts += self._line(line, number, top)
        return "\n".join([*parts, "</svg>"]) + "\n"

    def _line(self, line: Line, number: int, top: float) -> list[str]:
        colour = _COLOURS[number % len(_COLOURS)]
        xs = [self._x(index) for index in range(len(line.points))]
        path = " ".join(f"{x:.1f},{_y(median, top):.1f}" for x, (_, median, _) in zip(xs, line.points, strict=True))
        parts = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>']
        for x, (low, median, high) in zip(xs, line.points, strict=True):
            parts.append(f'<path d="M{x:.1f} {_y(low, top):.1f}V{_y(high, top):.1f}" stroke="{colour}"/>')
            parts.append(f'<circle cx="{x:.1f}" cy="{_y(median, top):.1f}" r="3" fill="{colour}"/>')
        at = _LEFT + number * (WIDTH - _LEFT - _RIGHT) / len(self.lines)
        parts.append(f'<rect x="{at:.1f}" y="32" width="12" height="4" fill="{colour}"/>')
        parts.append(_text(at + 18, 38, line.name, anchor="start"))
        return parts

    def _x(self, number: int) -> float:
        step = (WIDTH - _LEFT - _RIGHT) / len(self.categories)
        return _LEFT + step * (number + 0.5)


def _y(value: float, top: float) -> float:
    return HEIGHT - _BOTTOM - value / top * (HEIGHT - _TOP - _BOTTOM)


def _round_up(value: float) -> float:
    """Return the next of 0.4, 1, 2, 4, 10 and so on, which has round ticks."""
    step = 0.4
    while True:
        for factor in (1, 2.5, 5):
            if step * factor >= value:
                return step * factor
        step *= 10


def _text(x: float, y: float, text: str, *, anchor: str = "middle", weight: str = "normal") -> str:
    style = f'font-family="sans-serif" font-size="12" text-anchor="{anchor}" font-weight="{weight}" fill="#1f2328"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'
