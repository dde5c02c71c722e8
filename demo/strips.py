"""Draws, side by side and in plain text, who had which worker when."""

import os
import sys
import textwrap

CELLS = 35          # of a timeline
GAP = "   "         # between two of them
# of a cell in which a task begins, and of one in which it goes on
MARKS = {"alice": "aa", "bob": "B="}
BOTH, NOBODY = "+", "."
LEGEND = "a row is a worker: a Alice's, B Bob's, which goes on (=), + both, . nobody's"
COLOURS = {"a": "35", "B": "36", "=": "36", BOTH: "1"}


def show(runs):
    """The lines; every run has the same scale of time."""
    longest = max(run.seconds for run in runs)
    lines = [GAP.join(("   fair by %s" % run.fair_by).ljust(CELLS + 3)
                      for run in runs),
             GAP.join("   " + scale(longest) for _ in runs)]
    for worker in range(1, runs[0].workers + 1):
        lines.append(GAP.join("%2d %s" % (worker, strip(run, worker, longest))
                              for run in runs))
    return [line.rstrip() for line in lines]


def strip(run, worker, longest):
    """A cell says who had the worker in that time, if only for a moment."""
    cells = []
    width = longest / CELLS
    for cell in range(CELLS):
        start = cell * width
        had = [row for row in run.ran if row.worker == worker
               and row.began < start + width and row.ended > start]
        if len({row.group for row in had}) > 1:
            cells.append(BOTH)
        elif had:
            cells.append(MARKS[had[-1].group][had[-1].began < start])
        else:
            cells.append(NOBODY)
    return "".join(cells)


def scale(longest):
    """Whole seconds, each where it begins."""
    line = ""
    for second in range(int(longest) + 1):
        at = int(second * CELLS / longest)
        label = "%d s" % second
        if at + len(label) <= CELLS and at >= len(line):
            line = line.ljust(at) + label
    return line.ljust(CELLS)


def coloured(line):
    """The line with its marks in colours, where a terminal shows them."""
    if not sys.stdout.isatty() or "NO_COLOR" in os.environ:
        return line
    # the first cell of a timeline stands behind its worker's number
    words = line.split(" ")
    return " ".join(
        "".join("\033[%sm%s\033[0m" % (COLOURS[mark], mark)
                if mark in COLOURS else mark for mark in word)
        if len(word) == CELLS else word for word in words)


def sentence(tasks, by_time):
    return textwrap.wrap(
        "Fair by tasks, Alice's last thumbnail was done after %.1f s, and she had"
        " %.0f %% of the workers' seconds while both had work; fair by time, after"
        " %.1f s, and %.0f %%."
        % (tasks.last("alice"), 100 * tasks.part("alice"),
           by_time.last("alice"), 100 * by_time.part("alice")), 79)
