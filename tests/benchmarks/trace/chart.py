"""The comparison as an SVG, written by hand; readable on light and on dark pages."""

import math
from collections.abc import Mapping, Sequence
from html import escape

from sharing import Comparison

WIDTH, HEIGHT, TOP, BOTTOM = 1000, 400, 92, 46
BARS = (44, 600)  # left and right edge of the panel of hit rates
DOTS = (690, 984)  # of the panel of tenants
SERIES = {
    "one LRU": ("lru", "one LRU (stock vLLM)"),
    "static": ("static", "static"),
    "static by demand": ("demand", "static by demand"),
    "elastic": ("ours", "Saltwall elastic"),
}
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #52514e }
.title { font-size: 14px; font-weight: 600; fill: #0b0b0b }
.value { font-size: 10px }
.page { fill: #fcfcfb } .grid { stroke: #e1e0d9 } .axis { stroke: #8b8a84 }
.lru { fill: #8b8a84 } .static { fill: #eda100 } .demand { fill: #eb6834 } .ours { fill: #2a78d6 }
.dot { fill: #2a78d6; fill-opacity: .6; stroke: #fcfcfb }
@media (prefers-color-scheme: dark) {
text { fill: #c3c2b7 }
.title { fill: #fff }
.page { fill: #1a1a19 } .grid { stroke: #383835 } .axis { stroke: #8b8a84 }
.static { fill: #c98500 } .demand { fill: #d95926 } .ours { fill: #3987e5 }
.dot { fill: #3987e5; stroke: #1a1a19 }
}"""


def chart(comparisons: Mapping[float, Comparison], ceiling: float) -> str:
    """Two panels: hit rates by pool and strategy, and each tenant against its reserve alone.

    Args:
        comparisons: by pool (a fraction of the trace's distinct blocks).
        ceiling: the hit rate of a pool that holds everything.
    """
    body = [
        f'<rect class="page" width="{WIDTH}" height="{HEIGHT}"/>',
        *_legend(),
        *_bars(comparisons, ceiling),
        *_dots(comparisons),
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
            "<title>Hit rates of a replayed production trace</title>",
            f"<style>{STYLE}</style>",
            *body,
            "</svg>\n",
        ]
    )


def _text(x: float, y: float, text: str, anchor: str = "middle", kind: str = "") -> str:
    name = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{name}>{escape(text)}</text>'


def _line(edges: Sequence[float], y: float, kind: str, dashes: str = "") -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<line class="{kind}" x1="{edges[0]}" x2="{edges[1]}" y1="{y:.1f}" y2="{y:.1f}"{dashed}/>'
    )


def _legend() -> list[str]:
    parts = [_text(BARS[0], 24, "Prompt blocks found in the cache", "start", "title")]
    x: float = BARS[0]
    for kind, label in SERIES.values():
        parts.append(f'<rect class="{kind}" x="{x:.1f}" y="43" width="12" height="12" rx="2"/>')
        parts.append(_text(x + 17, 53, label, "start"))
        x += 36 + 6.6 * len(label)
    return parts


def _columns(edges: Sequence[float], pools: Sequence[float]) -> list[tuple[float, float]]:
    width = (edges[1] - edges[0]) / len(pools)
    return [(pool, edges[0] + width * (i + 0.5)) for i, pool in enumerate(pools)]


def _bars(comparisons: Mapping[float, Comparison], ceiling: float) -> list[str]:
    base = HEIGHT - BOTTOM
    highest = math.ceil(ceiling * 10 + 0.3) / 10

    def y(rate: float) -> float:
        return base - rate / highest * (base - TOP)

    parts = []
    for tick in range(round(highest * 10) + 1):
        parts.append(_line(BARS, y(tick / 10), "grid"))
        parts.append(_text(BARS[0] - 6, y(tick / 10) + 4, f"{tick * 10}%", "end"))
    parts.append(_line(BARS, y(ceiling), "axis", "4 4"))
    parts.append(_text(BARS[0] + 4, y(ceiling) - 5, f"everything cached: {ceiling:.1%}", "start"))
    column = (BARS[1] - BARS[0]) / len(comparisons)
    width = column * 0.84 / len(SERIES)
    for pool, middle in _columns(BARS, list(comparisons)):
        for i, (name, (kind, label)) in enumerate(SERIES.items()):
            rate = comparisons[pool].hits(name).rate
            x = middle + (i - len(SERIES) / 2) * width
            parts.append(
                f'<rect class="{kind}" x="{x + 1:.1f}" y="{y(rate):.1f}" width="{width - 2:.1f}" '
                f'height="{base - y(rate):.1f}" rx="2"><title>{label}: {rate:.1%}</title></rect>'
            )
            parts.append(_text(x + width / 2, y(rate) - 4, f"{rate * 100:.1f}", kind="value"))
        parts.append(_text(middle, base + 18, f"{pool:.0%}"))
    parts.append(_line(BARS, base, "axis"))
    caption = "pool, in per cent of the trace's distinct blocks"
    parts.append(_text(sum(BARS) / 2, HEIGHT - 10, caption))
    return parts


def _dots(comparisons: Mapping[float, Comparison]) -> list[str]:
    base = HEIGHT - BOTTOM
    kept = {
        pool: [r for t in c.tenants if (r := c.over_reserve_alone(t)) is not None]
        for pool, c in comparisons.items()
    }
    lowest = min(0.9, *(min(ratios) for ratios in kept.values()))
    highest = 2 ** math.ceil(math.log2(max(2, *(max(ratios) for ratios in kept.values()))))

    def y(ratio: float) -> float:
        return base - math.log(ratio / lowest) / math.log(highest / lowest) * (base - TOP)

    parts = [
        _text(DOTS[0] - 30, 24, "Each tenant, beside its reserve alone", "start", "title"),
        _text(DOTS[0] - 30, 53, "its hits in the elastic pool ÷ in a pool of its reserve", "start"),
    ]
    for exponent in range(round(math.log2(highest)) + 1):
        parts.append(_line(DOTS, y(2**exponent), "grid" if exponent else "axis"))
        parts.append(_text(DOTS[0] - 6, y(2**exponent) + 4, f"{2**exponent}×", "end"))
    for pool, middle in _columns(DOTS, list(comparisons)):
        for i, ratio in enumerate(kept[pool]):
            x = middle + (i / max(1, len(kept[pool]) - 1) - 0.5) * 50
            parts.append(
                f'<circle class="dot" cx="{x:.1f}" cy="{y(ratio):.1f}" r="4">'
                f"<title>tenant {i + 1}: {ratio:.3f}</title></circle>"
            )
        parts.append(_text(middle, base + 18, f"{pool:.0%}"))
    parts.append(_text(sum(DOTS) / 2, HEIGHT - 10, "pool; in each, tenants from busiest to idlest"))
    return parts
