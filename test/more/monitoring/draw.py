"""Draws the panels of deploy/monitoring/grafana.json from Prometheus's data.

The data shows one minute of a queue.  Alice's pages arrive all the time.  Bob
adds 10,000 files at once, and gets a limit.  Then all workers die and return.
Each panel's queries go to query_range of Prometheus, and this program draws
their results as lines.
"""

import json
import math
import os
import re
import sys
import threading
import time

TREE = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))
sys.path.insert(0, os.path.join(TREE, "test", "bench"))
sys.dont_write_bytecode = True
import plot                                             # noqa: E402

BOB, LIMIT, CRASH, BACK, END = 8, 22, 36, 48, 62        # seconds
WORKERS = 8
LEASE = "4 s"
WIDTH, HEIGHT, GAP = 480, 230, 20


def work(connect, crash, end):
    """Starts workers that pop and complete one task at a time, until each dies
    with a task."""
    with connect() as db:
        while not end.is_set():
            found = db.execute("SELECT id FROM fairq.pop('scan', lease => %s)", [LEASE]).fetchall()
            if crash.is_set():
                return
            time.sleep(0.02)
            for id, in found:
                db.execute("SELECT fairq.complete(%s)", [id])


def tell(connect):
    """Runs the events, and returns the times at which they begin and end."""
    db = connect()
    db.execute("SELECT fairq.create_queue('scan')")
    crash, end = threading.Event(), threading.Event()

    def hire():
        workers = [threading.Thread(target=work, args=(connect, crash, end)) for _ in range(WORKERS)]
        for worker in workers:
            worker.start()
        return workers

    begin = time.time()
    workers = hire()
    steps = [(BOB, lambda: db.execute(
                 "SELECT count(*) FROM fairq.enqueue_batch('scan', array_fill('bob'::text, ARRAY[10000]),"
                 " array_fill('{}'::jsonb, ARRAY[10000]))")),
             (LIMIT, lambda: db.execute("SELECT fairq.set_group('scan', 'bob', concurrency => 2)")),
             (CRASH, crash.set),
             (BACK, lambda: (crash.clear(), workers.extend(hire())))]
    while time.time() < begin + END:
        db.execute("SELECT fairq.enqueue('scan', 'alice') FROM generate_series(1, 8)")
        while steps and time.time() >= begin + steps[0][0]:
            steps.pop(0)[1]()
        time.sleep(0.1)
    end.set()
    for worker in workers:
        worker.join()
    db.close()
    return begin, begin + END


def series(ask, panel, begin, end):
    """The lines of a panel: [(legend, [(second, value)])]."""
    found = []
    for target in panel["targets"]:
        query = target["expr"].replace("$queue", "scan").replace("$__rate_interval", "4s")
        for one in ask("query_range", query=query, start=begin, end=end, step=1)["result"]:
            form = target.get("legendFormat") or "{{group_key}}, {{reason}}"
            legend = re.sub(r"{{(\w+)}}", lambda name: one["metric"].get(name[1], ""), form)
            points = [(when - begin, float(value)) for when, value in one["values"]]
            points = [point for point in points if math.isfinite(point[1])]
            if points:
                found.append((legend.removeprefix("scan, ").removeprefix("scan: "), points))
    return found


def top_of(values):
    """A round number that no value exceeds."""
    most = max(values, default=0) or 1
    unit = 10 ** math.floor(math.log10(most))
    return next(unit * n for n in (1, 2, 5, 10) if unit * n >= most)


def lines(points):
    """Splits points into stretches without a gap."""
    stretches = [[]]
    for point in points:
        if stretches[-1] and point[0] - stretches[-1][-1][0] > 2:
            stretches.append([])
        stretches[-1].append(point)
    return stretches


def draw_panel(panel, found, x, y):
    unit = panel["fieldConfig"]["defaults"].get("unit")
    left, right, top, bottom = x + 44, x + WIDTH - 8, y + 26, y + HEIGHT - 62
    high = top_of([value for _, points in found for _, value in points])
    parts = [plot.text(x, y + 14, panel["title"], weight="bold")]
    for i in range(3):
        at = bottom - (bottom - top) * i / 2
        name = plot.short(high * i / 2) + (" s" if unit == "s" else "")
        parts += [plot.line(left, at, right, at, "grid"),
                  plot.text(left - 5, at + 4, name, size=10, anchor="end", style="faint")]
    for second in range(0, END + 1, 20):
        at = left + (right - left) * second / END
        parts.append(plot.text(at, bottom + 13, f"{second} s", size=10, anchor="middle", style="faint"))
    columns = 1 if any(len(legend) > 30 for legend, _ in found) else 2
    for number, (legend, points) in enumerate(found):
        colour = number % len(plot.COLOURS)
        for stretch in lines(points):
            parts.append('<polyline points="%s" class="l%d" fill="none" stroke-width="1.6"/>' % (
                " ".join("%.1f,%.1f" % (left + (right - left) * when / END,
                                        bottom - (bottom - top) * value / high)
                         for when, value in stretch), colour))
        row, column = divmod(number, columns)
        at_x, at_y = x + 8 + column * (WIDTH // 2), bottom + 29 + 13 * row
        parts += [plot.line(at_x, at_y - 3, at_x + 14, at_y - 3, f"l{colour}"),
                  plot.text(at_x + 19, at_y, legend, size=10)]
    return parts


def draw(connect, programs, path):
    begin, end = tell(connect)
    time.sleep(2)
    with open(os.path.join(TREE, "deploy/monitoring/grafana.json")) as file:
        panels = json.load(file)["panels"]
    parts = []
    # the panels of fairness and dead letters are left out: these events produce
    # no data for them
    drawn = [(panel, found) for panel in panels if (found := series(programs.ask, panel, begin, end))]
    for number, (panel, found) in enumerate(drawn):
        parts += draw_panel(panel, found, GAP + number % 2 * (WIDTH + GAP),
                            84 + number // 2 * (HEIGHT + GAP))
    height = 84 + (len(drawn) + 1) // 2 * (HEIGHT + GAP)
    subtitle = (f"Alice's tasks arrive all the time. {BOB} s: Bob adds 10,000. {LIMIT} s: he gets a limit"
                f" of 2. {CRASH} s: all workers die. {BACK} s: others start.")
    with open(path, "w") as file:
        file.write(plot.document(2 * WIDTH + 3 * GAP, height, "The dashboard, of one minute",
                                 [subtitle], parts))
