"""Draws plots as SVG: lines on logarithmic axes, and bars.

Plots have light and dark colours.  Colours are CSS classes, so the reader's
colour scheme selects the light or the dark ones.  The background is drawn,
too, so a plot is readable on any page.  Contenders also have different marks.
"""

import math
from xml.sax.saxutils import escape

WIDTH = 760
HEIGHT = 440
LEFT, RIGHT, TOP, BOTTOM = 74, 154, 92, 58

LIGHT = {"ground": "#ffffff", "ink": "#1f2328", "faint": "#59636e",
         "grid": "#d8dee4"}
DARK = {"ground": "#0d1117", "ink": "#e6edf3", "faint": "#9198a1",
        "grid": "#30363d"}
# fairq's colours first, then those of the other contenders by name.
COLOURS = (("#0969da", "#4493f8"), ("#8250df", "#ab7df8"),
           ("#57606a", "#9ea7b0"), ("#bc4c00", "#db6d28"),
           ("#1a7f37", "#3fb950"), ("#bf3989", "#db61a2"))


def places(names):
    """The number of each contender, for colours and marks."""
    return {name: number % len(COLOURS) for number, name in enumerate(
        sorted(names, key=lambda name: (name != "fairq", name)))}


def document(width, height, title, subtitles, parts):
    def rules(colours, scheme):
        return ("text{fill:%(ink)s}.faint{fill:%(faint)s}"
                ".grid{stroke:%(grid)s}.ground{fill:%(ground)s}" % colours
                + "".join(".c%d{fill:%s}.l%d{stroke:%s}"
                          % (i, pair[scheme], i, pair[scheme])
                          for i, pair in enumerate(COLOURS)))

    parts = [text(20, 50 + 18 * i, subtitle, style="faint")
             for i, subtitle in enumerate(subtitles)] + parts
    return "\n".join([
        '<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d"'
        ' viewBox="0 0 %d %d" font-family="Helvetica, Arial, sans-serif"'
        ' font-size="13">' % (width, height, width, height),
        "<title>%s</title>" % escape(title),
        "<style>%s@media(prefers-color-scheme:dark){%s}</style>"
        % (rules(LIGHT, 0), rules(DARK, 1)),
        '<rect class="ground" width="100%" height="100%" rx="6"/>',
        text(20, 30, title, size=17, weight="bold")] + parts + ["</svg>\n"])


def text(x, y, words, size=13, anchor="start", style="", weight="normal",
         more=""):
    return ('<text x="%.1f" y="%.1f" font-size="%d" text-anchor="%s"'
            ' class="%s" font-weight="%s"%s>%s</text>'
            % (x, y, size, anchor, style, weight, more, escape(words)))


def line(x1, y1, x2, y2, style):
    return ('<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="%s"/>'
            % (x1, y1, x2, y2, style))


def mark(x, y, number):
    """A circle, square, triangle or diamond."""
    shape = number % 4
    if shape == 0:
        return '<circle cx="%.1f" cy="%.1f" r="4.5" class="c%d"/>' % (
            x, y, number)
    corners = {1: ((-4, -4), (4, -4), (4, 4), (-4, 4)),
               2: ((0, -5), (5, 4), (-5, 4)),
               3: ((0, -5.5), (5.5, 0), (0, 5.5), (-5.5, 0))}[shape]
    return '<polygon points="%s" class="c%d"/>' % (
        " ".join("%.1f,%.1f" % (x + dx, y + dy) for dx, dy in corners), number)


def short(value):
    """A number as on an axis: 500, 20k, 10M."""
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if value >= unit:
            return "%g%s" % (value / unit, name)
    return "%g" % value


# -------------------------------------------------------------------- lines

class LogAxis:
    """Maps positive values to a stretch of pixels. 0 has a place below them."""

    def __init__(self, values, start, end):
        positive = [v for v in values if v > 0]
        self.low = min(positive)
        self.high = max(positive)
        self.zero = min(values) == 0
        if self.high == self.low:
            self.high *= 10
        # The space between 0 and the lowest value is as wide as a factor of 3.
        self.from_ = math.log10(self.low) - (0.5 if self.zero else 0)
        self.scale = (end - start) / (math.log10(self.high) - self.from_)
        self.start = start

    def __call__(self, value):
        log = self.from_ if value <= 0 else math.log10(value)
        return self.start + (log - self.from_) * self.scale

    def ticks(self):
        """The marks of an axis: 0 if it occurs, the powers of ten, and, if
        these are few, also 2 and 5 times each power."""
        powers = range(math.floor(math.log10(self.low)),
                       math.ceil(math.log10(self.high)) + 1)
        for factors in ((1,), (1, 2, 5)):
            found = [f * 10.0 ** p for p in powers for f in factors
                     if self.low * 0.999 <= f * 10.0 ** p <= self.high * 1.001]
            if len(found) >= 3:
                break
        return ([0] if self.zero else []) + found


def lines(title, subtitles, x_name, y_name, contenders, numbers):
    """A line for each contender: {"points": [[x, y]]}.  A line that ended early
    also has "cut", the x of its end, and "why"."""
    xs = [x for c in contenders.values() for x, _ in c["points"]]
    xs += [c["cut"] for c in contenders.values() if "cut" in c]
    ys = [y for c in contenders.values() for _, y in c["points"]]
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    x_axis = LogAxis(xs, LEFT + 12, right - 12)
    # Whole decades, so that small differences look small.
    y_axis = LogAxis([10 ** math.floor(math.log10(min(ys))),
                      10 ** math.ceil(math.log10(max(ys) * 1.01))],
                     bottom, TOP)
    parts = []
    for tick in y_axis.ticks():
        y = y_axis(tick)
        parts.append(line(LEFT, y, right, y, "grid"))
        parts.append(text(LEFT - 8, y + 4, "%g ms" % tick, anchor="end",
                          style="faint"))
    for tick in x_axis.ticks():
        x = x_axis(tick)
        parts.append(line(x, bottom, x, bottom + 5, "grid"))
        parts.append(text(x, bottom + 20, short(tick), anchor="middle",
                          style="faint"))
    parts.append(text((LEFT + right) / 2, HEIGHT - 14, x_name,
                      anchor="middle"))
    parts.append(text(18, (TOP + bottom) / 2, y_name, anchor="middle",
                      more=' transform="rotate(-90 18 %.1f)"'
                      % ((TOP + bottom) / 2)))

    labels = []
    for name, contender in contenders.items():
        if not contender["points"]:
            continue
        number = numbers[name]
        pixels = [(x_axis(x), y_axis(y)) for x, y in contender["points"]]
        parts.append('<polyline points="%s" fill="none" stroke-width="2"'
                     ' class="l%d"/>' % (" ".join("%.1f,%.1f" % p
                                                 for p in pixels), number))
        parts += [mark(x, y, number) for x, y in pixels]
        x, y = pixels[-1]
        if "cut" in contender:
            to = x_axis(contender["cut"])
            parts.append('<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"'
                         ' stroke-width="2" stroke-dasharray="3 4"'
                         ' class="l%d"/>' % (x, y, to, TOP, number))
            y = TOP
        labels.append([y, name, number])
    # Names are drawn at the ends of the lines, without overlaps.
    labels.sort()
    for above, label in zip(labels, labels[1:]):
        label[0] = max(label[0], above[0] + (
            34 if "cut" in contenders[above[1]] else 18))
    for y, name, number in labels:
        if "cut" in contenders[name]:
            parts.append(text(right + 25, y + 18, "%s: %s" % (
                short(contenders[name]["cut"]), contenders[name]["why"]),
                              size=11, style="faint"))
        parts.append(mark(right + 14, y, number))
        parts.append(text(right + 25, y + 4, name, style="c%d" % number,
                          weight="bold" if name == "fairq" else "normal"))
    return document(WIDTH, HEIGHT, title, subtitles, parts)


# --------------------------------------------------------------------- bars

PANEL = 348
BAR = 20
BAR_LEFT = 84


def bars(title, subtitles, works, numbers, unit):
    """A panel for each kind of work, with its own scale from 0."""
    parts = []
    y = [94, 94]            # where the next panel goes, in each column
    for work, rates in works.items():
        column = 0 if y[0] <= y[1] else 1
        left = 20 + column * (PANEL + 24)
        top = y[column]
        parts.append(text(left, top + 10, work, weight="bold"))
        top += 20
        most = max(rates.values())
        width = PANEL - BAR_LEFT - 74
        for name in sorted(rates, key=lambda name: numbers[name]):
            length = width * rates[name] / most
            parts.append(text(left + BAR_LEFT - 8, top + 14, name,
                              anchor="end", style="faint"
                              if name != "fairq" else ""))
            parts.append('<rect x="%.1f" y="%.1f" width="%.1f" height="%d"'
                         ' class="c%d"/>' % (left + BAR_LEFT, top,
                                             max(length, 1), BAR - 4,
                                             numbers[name]))
            parts.append(text(left + BAR_LEFT + length + 6, top + 13,
                              "{:,.0f}".format(rates[name]) + unit, size=12))
            top += BAR
        parts.append(line(left + BAR_LEFT, y[column] + 18, left + BAR_LEFT,
                          top, "grid"))
        y[column] = top + 18
    return document(WIDTH, max(y) + 4, title, subtitles, parts)
