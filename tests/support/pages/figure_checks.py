"""What is wrong with a drawn figure, and what it says: for tests of any figure."""

from __future__ import annotations

import itertools

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox

from golow.report import style


def defects(figure: Figure) -> list[str]:
    """What stands beyond the figure's edge, and where legend, caption and panels overlap."""
    with style.drawing():
        renderer = FigureCanvasAgg(figure).get_renderer()
        _lay_out(figure)
        found = []
        drawn = figure.get_tightbbox(renderer)
        page = Bbox.from_bounds(0, 0, *figure.get_size_inches())
        pixel = 1 / figure.dpi
        if not all(page.padded(pixel).contains(*corner) for corner in drawn.corners()):
            found.append(f"{drawn} is drawn on a page of {page}")
        panels = [panel for panel in figure.axes if panel.get_visible()]
        boxes = {f"panel {place}": panel.get_tightbbox() for place, panel in enumerate(panels)}
        boxes |= {f"legend {id(item)}": item.get_window_extent() for item in _legends(figure)}
        boxes["caption"] = figure._supxlabel.get_window_extent()  # type: ignore[attr-defined]
        labels = [
            (label.get_text(), Text.get_window_extent(label))
            for panel in panels
            for label in _labels(panel)
        ]
        found += [
            f"{a} covers {b}"
            for a, b in itertools.combinations(boxes, 2)
            if _overlap(boxes[a], boxes[b])
        ]
        found += [
            f"{a!r} covers {b!r}"
            for (a, one), (b, other) in itertools.combinations(labels, 2)
            if _overlap(one, other)
        ]
        found += [
            f"panel {place} cuts a curve" for place, panel in enumerate(panels) if _cuts(panel)
        ]
    return found


def spilt(figure: Figure) -> list[str]:
    """Numbers and signs that cover one another or reach beyond their panel."""
    with style.drawing():
        _lay_out(figure)
        found = []
        for panel in figure.axes:
            texts = [text for text in panel.texts if text.get_visible()]
            boxes = [text.get_window_extent() for text in texts]
            names = [text.get_text() for text in texts]
            inside = panel.get_window_extent().expanded(1.01, 1.01)
            found += [
                f"{name} leaves its panel"
                for name, box in zip(names, boxes, strict=True)
                if not all(inside.contains(*corner) for corner in box.corners())
            ]
            found += [
                f"{names[a]} covers {names[b]}"
                for a, b in itertools.combinations(range(len(texts)), 2)
                if boxes[a].overlaps(boxes[b])
            ]
        return found


def _lay_out(figure: Figure) -> None:
    """Give everything its place, which it then keeps: to find it takes most of a drawing's time."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def _cuts(panel: Axes) -> bool:
    """True if a curve goes on beyond the right end of x."""
    drawn = [line for line in panel.lines if line.get_transform() == panel.transData]
    points = np.concatenate([np.zeros((1, 2)), *(line.get_xydata() for line in drawn)])
    there = points[np.isfinite(points).all(axis=1)]
    return bool((there[:, 0] > panel.get_xlim()[1]).any())


def _legends(figure: Figure) -> list[matplotlib.legend.Legend]:
    within = (panel.get_legend() for panel in figure.axes)
    return [*figure.legends, *(item for item in within if item is not None)]


def _labels(panel: Axes) -> list[Annotation]:
    return [text for text in panel.texts if isinstance(text, Annotation)]


def _overlap(first: Bbox, second: Bbox) -> bool:
    """By more than a pixel each way."""
    common = Bbox.intersection(first, second)
    return common is not None and min(common.width, common.height) > 1


def said(figure: Figure) -> str:
    """The caption in one line."""
    return figure.get_supxlabel().replace("\n", " ")


def described(figure: Figure) -> str:
    """What the metadata of the figure's file says, in one line."""
    return style.description(figure).replace("\n", " ")
