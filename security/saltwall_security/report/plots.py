"""Draws a check's plots as SVG that takes its colours from the page around it."""

import io
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import matplotlib as mpl
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from saltwall_security.report.document import PlotEntry

SERIES: Final = 6
"""How many colours the page has; further series begin again, dashed."""
MARKERS: Final = "ox^sDv"
SIZE: Final = (5.4, 3.3)
# Colours that stand for the page's: matplotlib knows no CSS variables.
_INK, _LINE = "#010203", "#040506"
_COLOURS: Final = [f"#0a0b{number:02x}" for number in range(1, SERIES + 1)]
_STYLE: Final[Any] = {
    "svg.fonttype": "none",  # text stays text
    "axes.edgecolor": _LINE,
    "axes.labelcolor": _INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 9,
    "grid.color": _LINE,
    "legend.frameon": False,
    "text.color": _INK,
    "text.parse_math": False,
    "xtick.color": _INK,
    "ytick.color": _INK,
}


def svg(plot: PlotEntry, name: str) -> Markup:
    """One plot, for a page that defines `--line` and `--series-1` to `--series-6`.

    Args:
        name: another for each plot of a page; ids in the plot are made of it.
    """
    with mpl.rc_context(_STYLE | {"svg.hashsalt": name}):
        figure = Figure(figsize=SIZE, layout="constrained")
        figure.patch.set_alpha(0)
        axes = figure.add_subplot()
        axes.patch.set_alpha(0)
        axes.grid(visible=True, linewidth=0.5, alpha=0.6)
        _DRAW[plot.kind](axes, plot)
        if "x" in plot.log:
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:g}")
        if "y" in plot.log:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:g}")
        elif axes.get_ylim()[0] > 0:
            axes.set_ylim(bottom=0)  # small differences look small
        axes.set_xlabel(plot.axes[0])
        axes.set_ylabel(plot.axes[1])
        if len(plot.series) > 1:
            figure.legend(loc="outside lower center", ncols=2, fontsize=8)
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    return Markup(_for_page(drawn.getvalue(), plot.title))  # noqa: S704  # all text is escaped


def _distribution(axes: Axes, plot: PlotEntry) -> None:
    for index, (name, values) in enumerate(plot.series.items()):
        known = [value for value in values if value is not None]
        if known:
            axes.ecdf(known, label=f"{name} (n = {len(known)})", **_look(index))


def _lines(axes: Axes, plot: PlotEntry) -> None:
    for index, (name, values) in enumerate(plot.series.items()):
        x, y = _along(plot, values)
        axes.plot(x, y, label=name, **_look(index))


def _points(axes: Axes, plot: PlotEntry) -> None:
    for index, (name, values) in enumerate(plot.series.items()):
        x, y = _along(plot, values)
        look = _look(index) | {"linestyle": "none", "marker": MARKERS[index % len(MARKERS)]}
        axes.plot(x, y, label=name, markersize=5, **look)


_DRAW: Final[dict[str, Callable[[Axes, PlotEntry], None]]] = {
    "distribution": _distribution,
    "lines": _lines,
    "points": _points,
}


def _along(plot: PlotEntry, values: Sequence[float | None]) -> tuple[list[float], list[float]]:
    nothing = float("nan")
    pairs = list(zip(plot.x, values, strict=False))
    return (
        [nothing if x is None else x for x, _ in pairs],
        [nothing if y is None else y for _, y in pairs],
    )


def _look(index: int) -> dict[str, Any]:
    style = "solid" if index < SERIES else "dashed"
    return {"color": _COLOURS[index % SERIES], "linewidth": 1.6, "linestyle": style}


def _for_page(text: str, title: str) -> str:
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r'<g id="[^"]*"', "<g", text)  # ids of groups would repeat from plot to plot
    text = text.replace(_INK, "currentColor").replace(_LINE, "var(--line)")
    for number, colour in enumerate(_COLOURS, start=1):
        text = text.replace(colour, f"var(--series-{number})")
    return text.replace("<svg ", f'<svg role="img" aria-label="{escape(title)}" ', 1)
