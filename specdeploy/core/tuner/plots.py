"""The answer as an SVG picture and as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from math import log2
from typing import Final

from specdeploy.core.tuning import ConcurrencyRow, TuningReport

SVG_NAME: Final = "tuning.svg"
HTML_NAME: Final = "tuning.html"
_WIDTH, _HEIGHT = 640, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 40, 48
_STYLE: Final = (
    "text{font:12px sans-serif;fill:#222}.t{font-weight:bold}.g{stroke:#ddd}.one{stroke:#888;"
    "stroke-dasharray:4 3}.band{fill:#76b900;fill-opacity:.25}.line{fill:none;stroke:#4a7500;"
    "stroke-width:2}.dot{fill:#4a7500}"
)
_PAGE: Final = (
    "body{font:14px sans-serif;max-width:52rem;margin:2rem auto;color:#222}table{border-collapse:"
    "collapse}td,th{padding:.2rem .6rem;text-align:right;border-bottom:1px solid #ddd}"
)


def plots_of(report: TuningReport) -> dict[str, str]:
    """Return the files to write beside ``tuning.json``, by name."""
    return {SVG_NAME: svg_of(report), HTML_NAME: html_of(report)}


def svg_of(report: TuningReport) -> str:
    """Return speedup against requests in flight, with its interval, as SVG."""
    rows = report.by_concurrency
    title = f"{report.target} on {report.gpu}: speedup of tokens/s per request"
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
                f'width="{_WIDTH}" height="{_HEIGHT}" role="img">'
            ),
            f"<title>{escape(title)}</title><style>{_STYLE}</style>",
            f'<text class="t" x="{_LEFT}" y="20">{escape(title)}</text>',
            *_axes(rows),
            *_curve(rows),
            "</svg>\n",
        ]
    )


def html_of(report: TuningReport) -> str:
    """Return the verdict, the picture, the table and the assumptions as one page."""
    assumed = "".join(f"<li>{escape(line)}</li>" for line in report.assumptions)
    warned = "".join(f"<li><b>{escape(line)}</b></li>" for line in report.warnings)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(report.target)}: {report.verdict}</title><style>{_PAGE}</style></head>"
        f"<body><h1>{report.verdict}</h1><p>{escape(report.reason)}</p>\n{svg_of(report)}"
        f"{_table(report.by_concurrency)}\n<h2>Assumed</h2><ul>{warned}{assumed}</ul>"
        "</body></html>\n"
    )


def _table(rows: Sequence[ConcurrencyRow]) -> str:
    heads = ("in flight", "draft length", "speedup", "from", "to", "TPOT ms", "without a draft")
    lines = (
        (
            str(row.concurrency),
            str(row.draft_length),
            f"{row.speedup.value:.2f}",
            f"{row.speedup.low:.2f}",
            f"{row.speedup.high:.2f}",
            f"{row.tpot_ms:.1f}",
            f"{row.baseline_tpot_ms:.1f}",
        )
        for row in rows
    )
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in line)}</tr>" for line in lines)
    return f"<table><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>{body}</table>"


def _axes(rows: Sequence[ConcurrencyRow]) -> Iterator[str]:
    top = _top(rows)
    step = 0.5 if top <= 4 else 1.0  # noqa: PLR2004 - at most eight lines
    for mark in range(int(top / step) + 1):
        y = _y(mark * step, top)
        style = "one" if mark * step == 1 else "g"
        yield f'<line class="{style}" x1="{_LEFT}" y1="{y}" x2="{_WIDTH - _RIGHT}" y2="{y}"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{mark * step:g}</text>'
    for row in rows:
        x = _x(row.concurrency, rows)
        yield f'<text x="{x}" y="{_HEIGHT - 28}" text-anchor="middle">{row.concurrency}</text>'
    yield f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 8}" text-anchor="middle">requests in flight</text>'


def _curve(rows: Sequence[ConcurrencyRow]) -> Iterator[str]:
    top = _top(rows)
    xs = [_x(row.concurrency, rows) for row in rows]
    high = [f"{x},{_y(row.speedup.high, top)}" for x, row in zip(xs, rows, strict=True)]
    low = [f"{x},{_y(row.speedup.low, top)}" for x, row in zip(xs, rows, strict=True)]
    line = [f"{x},{_y(row.speedup.value, top)}" for x, row in zip(xs, rows, strict=True)]
    yield f'<polygon class="band" points="{" ".join([*high, *reversed(low)])}"/>'
    yield f'<polyline class="line" points="{" ".join(line)}"/>'
    for x, row in zip(xs, rows, strict=True):
        y = _y(row.speedup.value, top)
        yield f'<circle class="dot" cx="{x}" cy="{y}" r="4"/>'
        yield f'<text x="{x}" y="{y - 10}" text-anchor="middle">k {row.draft_length}</text>'


def _top(rows: Sequence[ConcurrencyRow]) -> float:
    return max(1.5, *(row.speedup.high for row in rows)) if rows else 1.5


def _x(concurrency: int, rows: Sequence[ConcurrencyRow]) -> float:
    """Place a concurrency on a scale of powers of two."""
    first, last = log2(rows[0].concurrency), log2(rows[-1].concurrency)
    share = (log2(concurrency) - first) / (last - first) if last > first else 0.5
    return round(_LEFT + 24 + share * (_WIDTH - _LEFT - _RIGHT - 48), 1)


def _y(speedup: float, top: float) -> float:
    return round(_HEIGHT - _BOTTOM - speedup / top * (_HEIGHT - _TOP - _BOTTOM), 1)
