#!/usr/bin/python3
"""Draws the dashboard for Grafana, deploy/grafana/splitnic.json, without Grafana.

  dashboard.py URL BEGIN END PICTURE

sends the queries of the panels to the Prometheus at URL, for the time from BEGIN to END (seconds
since 1970), and draws the answers: SVG or PNG, by the name of PICTURE. It knows the kinds of
panels, units and settings that the dashboard has. It needs Debian's python3-matplotlib.
"""

import itertools
import json
import math
import pathlib
import re
import sys
import textwrap
import time
import urllib.parse
import urllib.request

import matplotlib.pyplot as plt
from matplotlib import textpath, ticker

DASHBOARD = pathlib.Path(__file__).parents[2] / "deploy/grafana/splitnic.json"
STEP = 5  # seconds: the scrape interval of dashboard.sh
# What Grafana replaces: all instances and cards, and at least four scrape intervals.
VARIABLES = {"$instance": ".+", "$card": ".*", "$__rate_interval": f"{4 * STEP}s"}
INK, GREY, LINE = "#24292e", "#5a6169", "#d8d9da"
MEANING = {"green": "#37872d", "red": "#c4162a", "text": INK}
COLOURS = ["#56a64b", "#d9a400", "#3274d9", "#e0722a", "#c4162a", "#00838f", "#a352cc", "#8a6d3b", "#e685b5",
           "#1b4f9c", "#9bc53d", "#7a1f5c"]
LINES = 3  # of a legend


def ask(url, begin, end, target):
    """Returns the series that a target's query has."""
    expr = target["expr"]
    for name, value in VARIABLES.items():
        expr = expr.replace(name, value)
    values = {"query": expr} | ({"time": end} if target.get("instant") else {"start": begin, "end": end, "step": STEP})
    kind = "query" if target.get("instant") else "query_range"
    with urllib.request.urlopen(f"{url}/api/v1/{kind}?{urllib.parse.urlencode(values)}") as answer:
        return json.load(answer)["data"]["result"]


def scaled(value, unit):
    """The value as Grafana writes it, with the unit of the panel."""
    if unit == "percentunit":
        return f"{value * 100:.3g}%"
    step, prefixes = (1024, ["", "Ki", "Mi", "Gi"]) if unit == "bytes" else (1000, ["", "k", "M", "G"])
    power = 0
    while abs(value) >= step and power < len(prefixes) - 1:
        value, power = value / step, power + 1
    name = {"none": "", "bps": "b/s", "pps": "p/s", "ops": "ops/s", "bytes": "B"}[unit]
    return f"{value:.4g} {prefixes[power]}{name}".rstrip()


def wide(words, size):
    """The width of words, in inches."""
    return textpath.TextPath((0, 0), words, size=size).get_extents().x1 / 72


def in_runs(answers):
    """Divides the answers of a series where some are missing, into lists of times and of values."""
    runs, last = [], -math.inf
    for at, value in answers:
        if at - last > STEP:
            runs.append(([], []))
        runs[-1][0].append(at)
        runs[-1][1].append(float(value))
        last = at
    return runs


def in_lines(names, w):
    """Divides a legend, pairs of a name and a colour, into lines of the width w, with the place of each name."""
    lines, at = [[]], 0
    for name, colour in names:
        space = wide(name, 7) + 0.3
        if at and at + space > w:
            lines.append([])
            at = 0
        lines[-1].append((at, name, colour))
        at += space
    return lines


class Picture:
    """The panels of the dashboard. Lengths are inches, from the left and the top."""

    WIDTH, HEIGHT, GAP = 10, 0.25, 0.03  # of the page, of a row of Grafana's grid, around a panel

    def __init__(self, dashboard, url, begin, end):
        self.url, self.begin, self.end = url, begin, end
        self.height = self.HEIGHT * max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in dashboard["panels"])
        self.figure = plt.figure(figsize=(self.WIDTH, self.height), facecolor="#f4f5f5")
        for panel in dashboard["panels"]:
            at, column = panel["gridPos"], self.WIDTH / 24
            box = at["x"] * column, at["y"] * self.HEIGHT, at["w"] * column, at["h"] * self.HEIGHT
            getattr(self, panel["type"])(panel, *box)

    def text(self, x, y, words, **how):
        self.figure.text(x / self.WIDTH, 1 - y / self.height, words, **{"size": 7.5, "color": INK} | how)

    def axes(self, x, y, w, h):
        return self.figure.add_axes((x / self.WIDTH, 1 - (y + h) / self.height, w / self.WIDTH, h / self.height))

    def frame(self, panel, x, y, w, h):
        """Draws the panel's rectangle and title, and returns its target and series."""
        around = self.axes(x + self.GAP, y + self.GAP, w - 2 * self.GAP, h - 2 * self.GAP)
        around.set(xticks=[], yticks=[])
        around.spines[:].set_color(LINE)
        self.text(x + 0.1, y + 0.09, textwrap.fill(panel["title"], int(w * 11)), size=8, weight="bold", va="top")
        (target,) = panel["targets"]
        result = ask(self.url, self.begin, self.end, target)
        if not result:
            self.text(x + w / 2, y + h * 0.6, "No data", color=GREY, ha="center")
        return target, result

    def row(self, panel, x, y, w, h):
        self.text(x + 0.1, y + 0.19, panel["title"], size=10, weight="bold")

    def stat(self, panel, x, y, w, h):
        _, result = self.frame(panel, x, y, w, h)
        if not result:
            return
        value, defaults = float(result[0]["value"][1]), panel["fieldConfig"]["defaults"]
        reached = [s["color"] for s in defaults["thresholds"]["steps"] if s["value"] is None or value >= s["value"]]
        words = scaled(value, defaults["unit"])
        self.text(x + w / 2, y + h * 0.8, words, size=20, ha="center", color=MEANING[reached[-1]])

    def table(self, panel, x, y, w, h):
        _, result = self.frame(panel, x, y, w, h)
        columns = sorted({label for r in result for label in r["metric"]})
        for row, cells in enumerate([columns] + [[r["metric"].get(c, "") for c in columns] for r in result]):
            for i, cell in enumerate(cells):
                colour = "#3871dc" if row == 0 else INK
                self.text(x + 0.1 + i * w / len(columns), y + 0.48 + row * 0.24, cell, color=colour)

    def timeseries(self, panel, x, y, w, h):
        target, result = self.frame(panel, x, y, w, h)
        if not result:
            return
        names = [re.sub(r"{{(\w+)}}", lambda m, r=r: r["metric"].get(m[1], ""), target["legendFormat"]) for r in result]
        runs = [in_runs(series["values"]) for series in result]
        moved = [i for i, run in enumerate(runs) if any(any(values) for _, values in run)]
        colours = dict(zip(moved, itertools.cycle(COLOURS)))
        lines = in_lines([(n, colours.get(i, GREY)) for i, n in enumerate(names)], w - 0.2)
        shown = list(moved)
        while len(lines) > LINES:  # Grafana has them scroll
            zero = ", all 0" if shown == moved else ""
            rest = f"{len(names) - len(shown)}{' more' if shown else ''}{zero}"
            lines = in_lines([(names[i], colours[i]) for i in shown] + [(rest, GREY)], w - 0.2)
            shown = shown[:-1]
        for up, line in enumerate(reversed(lines)):
            for at, name, colour in line:
                self.text(x + 0.12 + at, y + h - 0.1 - up * 0.14, "\N{BLACK SQUARE}", size=7, color=colour)
                self.text(x + 0.25 + at, y + h - 0.1 - up * 0.14, name, size=7, color=GREY)

        plot = self.axes(x + 0.6, y + 0.3, w - 0.75, h - 0.55 - 0.14 * len(lines))
        still = [i for i in range(len(runs)) if i not in colours][:1]  # the others are behind it
        for i, (times, values) in ((i, run) for i in still + moved for run in runs[i]):
            plot.plot(times, values, color=colours.get(i, GREY), linewidth=1)
            if any(values):
                plot.fill([times[0], *times, times[-1]], [0, *values, 0], color=colours[i], alpha=0.1, linewidth=0)
        unit = panel["fieldConfig"]["defaults"]["unit"]
        top = 1.08 * (max(max(values) for run in runs for _, values in run) or 1)
        every = 60 * next(m for m in (1, 2, 5, 10, 30, 60) if (self.end - self.begin) / 60 / m * 0.6 < w)
        ticks = range(math.ceil(self.begin / every) * every, int(self.end), every)
        plot.set(xlim=(self.begin, self.end), ylim=(0, top), facecolor="none")
        plot.set_xticks(ticks, [time.strftime("%H:%M", time.gmtime(at)) for at in ticks])
        plot.yaxis.set_major_locator(ticker.MaxNLocator(4, steps=[1, 2, 5, 10], integer=unit == "none"))
        if unit == "bytes":
            plot.yaxis.set_major_locator(ticker.MultipleLocator(2 ** round(math.log2(top / 3))))
        plot.yaxis.set_major_formatter(lambda value, _: scaled(value, unit))
        plot.tick_params(labelsize=7, labelcolor=GREY, length=0, pad=3)
        plot.grid(color="#e4e5e6", linewidth=0.6)
        plot.spines[:].set_visible(False)


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    url, begin, end, name = sys.argv[1:]
    plt.rcParams.update({"font.sans-serif": ["DejaVu Sans", "sans-serif"], "svg.fonttype": "none",
                         "svg.hashsalt": "splitnic", "axes.linewidth": 0.7, "path.simplify_threshold": 0.5})
    picture = Picture(json.loads(DASHBOARD.read_text()), url, float(begin), float(end))
    picture.figure.savefig(name, dpi=192)
    if name.endswith(".svg"):  # a tenth of a point is enough, without names and comments
        file = pathlib.Path(name)
        text = re.sub(r' d="[^"]*"', lambda d: re.sub(r"(\.\d)\d+| \n", r"\1", d[0]), file.read_text())
        text = re.sub(r' id="(text|line|patch|[xy]tick|axes|matplot)[\w.]*"| transform="rotate\(-0 [^"]*"', "", text)
        file.write_text(re.sub(r"(?m)^ *(<!--.*-->\n)?", "", text).replace(">\n</", "></"))


if __name__ == "__main__":
    main()
