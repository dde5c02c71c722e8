"""The results: printed at once, and saved for the report.

The file is JSON: "machine" and "sizes", and under "measurements", by name,

  tables   title, columns (two names), and rows: what, a and b (medians), unit,
           ratio (the median of the pairs' ratios).  A row with a promise also
           has at_least or at_most, and whether the promise is met
  lines    per plot and contender: points [x, y]; for a line that ended early
           also "cut", the x of its end, and "why"
  bars     per kind of work and contender: a rate
"""

import json
import os
import statistics


def number(value, unit):
    if unit in (" ms", "x"):
        return "%.3f%s" % (value, "" if unit == "x" else unit)
    return "{:,.0f}{}".format(value, unit)


class Results:
    def __init__(self, machine, sizes):
        self.data = {"machine": machine, "sizes": sizes, "measurements": {}}
        self.missed = 0
        self.promised = 0

    def add_to(self, path):
        """Reads the file's results.  Returns False if the results have other
        sizes than this run."""
        if not os.path.exists(path):
            return True
        with open(path, encoding="utf-8") as file:
            before = json.load(file)
        # JSON has strings as keys
        if before["sizes"] != json.loads(json.dumps(self.data["sizes"])):
            return False
        self.data["measurements"] = before["measurements"]
        return True

    def begin(self, name):
        self.current = {"tables": [], "lines": {}, "bars": {}}
        self.data["measurements"][name] = self.current

    def table(self, title, a, b):
        self.current["tables"].append(
            {"title": title, "columns": [a, b], "rows": []})
        print("\n%-52s%13s%13s%8s%9s" % (title, a, b, "ratio", "promise"),
              flush=True)

    def row(self, what, pairs, unit, at_least=None, at_most=None):
        """A row from pairs of measurements (first column, second column)."""
        ratios = [a / b for a, b in pairs if b]
        row = {"what": what, "unit": unit,
               "a": statistics.median(a for a, _ in pairs),
               "b": statistics.median(b for _, b in pairs),
               "ratio": statistics.median(ratios) if ratios else None}
        promise = verdict = ""
        if ratios and (at_least or at_most):
            ratio = round(row["ratio"], 2)      # as printed
            if at_least:
                row["at_least"] = at_least
                row["met"] = ratio >= at_least
                promise = ">= %.2f" % at_least
            else:
                row["at_most"] = at_most
                row["met"] = ratio <= at_most
                promise = "<= %.2f" % at_most
            self.promised += 1
            self.missed += not row["met"]
            verdict = "met" if row["met"] else "missed"
        self.current["tables"][-1]["rows"].append(row)
        print("  %-50s%13s%13s%8s%9s  %s"
              % (what, number(row["a"], unit), number(row["b"], unit),
                 "%.2f" % row["ratio"] if ratios else "-", promise, verdict),
              flush=True)

    def point(self, plot, contender, x, y):
        self.line(plot, contender)["points"].append([x, y])
        print("  %-30s%-12s%12s%16s" % (plot, contender, "{:,}".format(x),
                                       "%.3f ms" % y), flush=True)

    def cut(self, plot, contender, x, why):
        self.line(plot, contender).update(cut=x, why=why)
        print("  %-30s%-12s%12s%16s" % (plot, contender, "{:,}".format(x),
                                       why), flush=True)

    def line(self, plot, contender):
        return self.current["lines"].setdefault(plot, {}).setdefault(
            contender, {"points": []})

    def bar(self, work, contender, rates):
        self.current["bars"].setdefault(work, {})[contender] = (
            statistics.median(rates))

    def save(self, path):
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.data, file, indent=1)
            file.write("\n")
