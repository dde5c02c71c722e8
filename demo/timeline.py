"""Draws the order of service in both queues side by side, as an SVG."""

import math
from xml.sax.saxutils import escape

WIDTH = 1200
MARGIN = 24
GAP = 40
NAMES = 70          # left of a panel, for the workers' names
TOP = 130
ROW = 44
BAR = 26

INK = "#1f2933"
FAINT = "#7b8794"
GRID = "#e4e7eb"
GREYS = ("#b8c0c8", "#98a3af")      # alternating, to separate the tasks
ALICE = "#d6246e"

PANEL = (WIDTH - 2 * MARGIN - GAP) / 2
PLOT = PANEL - NAMES


def draw(outcomes, workers):
    """Returns the SVG: a panel for each outcome, with one time scale for
    both."""
    bottom = TOP + workers * ROW
    height = bottom + 84
    longest = max(o.seconds for o in outcomes)
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d"'
        ' viewBox="0 0 %d %d" font-family="Helvetica, Arial, sans-serif"'
        ' font-size="13" fill="%s">' % (WIDTH, height, WIDTH, height, INK),
        "<title>One page of alice among %d files of bob</title>"
        % (outcomes[0].tasks - 1),
        '<rect width="100%" height="100%" fill="#fff"/>',
        text(MARGIN, 36, "One page of alice among %d files of bob"
             % (outcomes[0].tasks - 1), size=20, weight="bold"),
        text(MARGIN, 58, "%d workers; a bar is a task, from its start to its"
             " end" % workers, fill=FAINT)]
    for number, outcome in enumerate(outcomes):
        left = MARGIN + NAMES + number * (PANEL + GAP)
        parts += panel(outcome, workers, left, bottom, longest)
    parts += legend(height - 22)
    parts.append("</svg>\n")
    return "\n".join(parts)


def panel(outcome, workers, left, bottom, longest):
    scale = PLOT / longest

    def x(seconds):
        return left + seconds * scale

    parts = [text(left, TOP - 40, outcome.name, size=16, weight="bold")]
    for second in ticks(longest):
        parts.append(line(x(second), TOP - 6, x(second), bottom, GRID))
        parts.append(text(x(second), bottom + 18, "%g s" % second,
                          anchor="middle", fill=FAINT))

    # alice's wait is drawn behind everything else.
    alice = outcome.alice
    served = alice.started if alice else outcome.seconds
    parts.append(
        '<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"'
        ' fill-opacity="0.12"/>' % (
            x(outcome.enqueued), TOP - 6,
            max(1.0, (served - outcome.enqueued) * scale),
            bottom - TOP + 6, ALICE))

    for worker in range(workers):
        y = row_y(worker)
        parts.append(text(left - 10, y + BAR / 2 + 4, "worker %d"
                          % (worker + 1), anchor="end", fill=FAINT))
        tasks = [row for row in outcome.served
                 if row.worker == worker and row.group == "bob"]
        for shade, grey in enumerate(GREYS):
            parts.append('<path fill="%s" d="%s"/>' % (grey, "".join(
                "M%.2f %gh%.2fv%dh-%.2fz" % (
                    x(row.started), y,
                    max(0.05, (row.finished - row.started) * scale), BAR,
                    max(0.05, (row.finished - row.started) * scale))
                for row in tasks[shade::len(GREYS)])))

    parts.append(
        '<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="%s"'
        ' stroke-dasharray="3 3"/>' % (
            x(outcome.enqueued), TOP - 14, x(outcome.enqueued), bottom,
            ALICE))
    parts.append(text(x(outcome.enqueued) + 4, bottom + 36, "alice enqueues",
                      fill=ALICE))
    parts.append(line(x(outcome.enqueued), bottom, x(outcome.enqueued),
                      bottom + 36, ALICE))
    if alice:
        y = row_y(alice.worker)
        parts.append(
            '<rect x="%.1f" y="%d" width="%.1f" height="%d" rx="2"'
            ' fill="%s" stroke="#fff"/>' % (
                x(alice.started) - 3, y - 5,
                max(6.0, (alice.finished - alice.started) * scale),
                BAR + 10, ALICE))
        parts.append(line(x(alice.started), TOP - 16, x(alice.started), y - 5,
                          ALICE))
        late = alice.started > longest / 2
        parts.append(text(
            x(alice.started) + (3 if late else -3), TOP - 20,
            "alice's turn, after %s, %s"
            % (number_of(outcome.wait_tasks, "task"),
               duration(outcome.wait_seconds)),
            anchor="end" if late else "start", fill=ALICE, weight="bold"))
    return parts


def legend(y):
    return [
        '<rect x="%d" y="%d" width="14" height="12" fill="%s"/>'
        % (MARGIN + NAMES, y - 11, GREYS[0]),
        text(MARGIN + NAMES + 20, y, "bob's tasks"),
        '<rect x="%d" y="%d" width="14" height="12" fill="%s"/>'
        % (MARGIN + NAMES + 120, y - 11, ALICE),
        text(MARGIN + NAMES + 140, y, "alice's task"),
        '<rect x="%d" y="%d" width="14" height="12" fill="%s"'
        ' fill-opacity="0.12"/>' % (MARGIN + NAMES + 240, y - 11, ALICE),
        text(MARGIN + NAMES + 260, y, "alice waits")]


def row_y(worker):
    return TOP + worker * ROW + (ROW - BAR) / 2


def ticks(longest):
    """About six round numbers from 0 to the longest time."""
    step = 10 ** math.floor(math.log10(longest / 6))
    step *= next(factor for factor in (1, 2, 5, 10)
                 if longest / (step * factor) <= 6)
    return [i * step for i in range(int(longest / step) + 1)]


def number_of(count, noun):
    return "%s %s%s" % (count, noun, "" if count == 1 else "s")


def duration(seconds):
    return "%.0f ms" % (1000 * seconds) if seconds < 1 else "%.1f s" % seconds


def line(x1, y1, x2, y2, stroke):
    return ('<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>'
            % (x1, y1, x2, y2, stroke))


def text(x, y, words, size=13, anchor="start", fill=INK, weight="normal"):
    return ('<text x="%.1f" y="%.1f" font-size="%d" text-anchor="%s"'
            ' fill="%s" font-weight="%s">%s</text>'
            % (x, y, size, anchor, fill, weight, escape(words)))
