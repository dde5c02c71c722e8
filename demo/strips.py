"""Draws two timelines of the workers side by side, in plain text."""

import os
import sys
import textwrap

TITLES = {"tasks": "task-fair", "time": "time-fair"}
CELLS = 35          # the width of a timeline
GAP = "   "         # between two timelines
# marks of a cell in which a task begins, and of one in which it continues
MARKS = {"alice": "aa", "bob": "B="}
BOTH, NOBODY = "+", "."
LEGEND = "one row per worker: a Alice, B Bob, = continued, + both, . idle"
COLOURS = {"a": "35", "B": "36", "=": "36", BOTH: "1"}


def show(runs):
    """Returns the lines that show both runs, with one time scale."""
    longest = max(run.seconds for run in runs)
    lines = [GAP.join(("   " + TITLES[run.fair_by]).ljust(CELLS + 3)
                      for run in runs),
             GAP.join("   " + scale(longest) for _ in runs)]
    for worker in range(1, runs[0].workers + 1):
        lines.append(GAP.join("%2d %s" % (worker, strip(run, worker, longest))
                              for run in runs))
    return [line.rstrip() for line in lines]


def strip(run, worker, longest):
    """A line of cells. Each cell shows which groups used the worker during its
    time."""
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
    """Returns a scale that shows each whole second at its place."""
    line = ""
    for second in range(int(longest) + 1):
        at = int(second * CELLS / longest)
        label = "%d s" % second
        if at + len(label) <= CELLS and at >= len(line):
            line = line.ljust(at) + label
    return line.ljust(CELLS)


def coloured(line):
    """Returns the line, with coloured marks if the output is a terminal."""
    if not sys.stdout.isatty() or "NO_COLOR" in os.environ:
        return line
    # a timeline's first cell follows the worker's number
    words = line.split(" ")
    return " ".join(
        "".join("\033[%sm%s\033[0m" % (COLOURS[mark], mark)
                if mark in COLOURS else mark for mark in word)
        if len(word) == CELLS else word for word in words)


def sentence(tasks, by_time):
    return textwrap.wrap(
        "Task-fair: Alice's last thumbnail ended after %.1f s, and she had"
        " %.0f %% of the workers' seconds while both had work. Time-fair: after"
        " %.1f s, with %.0f %%."
        % (tasks.last("alice"), 100 * tasks.part("alice"),
           by_time.last("alice"), 100 * by_time.part("alice")), 79)
