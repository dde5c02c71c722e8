"""The census: what is running is counted by one pass, while work goes on.

A group's counter is not known.  The table has some pages, and a census reads
them one after the other; each at one moment, with a dirty snapshot, so that it
sees what is committed and what open transactions are changing.  From the
moment on at which it has got its number the counter counts what it may miss.
A step here is what happens at once for everybody else: a look at the census, a
section under the counter's mutex, a row that is written, the end of a
transaction that becomes visible, a page that is read.  (src/counter.c, rule 7,
and census.c say the rest.)

Of the counter, protected by its mutex:

    known, running      running is not less than the truth
    doubtful            but it may be more
    census              the number of the census that the rest is of
    found               running tasks that this has come by
    adds                and those that it may have missed
    unsure              some of them may not be running
    spent               the counter has been known since it began
    holds               rows that are being written

Workers claim, extend, finish and take tasks, each its own.  A step of the
census that one session has begun can be taken over by another at any time.

Promised is

too little      a counter that is known says no less than the truth: the tasks
                that run, from the claim until its end is visible.
not exact       when all is quiet, a known counter that is not doubtful says
                the truth.
stranded        when all is quiet, and the counter has to be known, whoever
                does what is left of the census gets to know it.
"""

from collections import namedtuple

from states import Explorer, Fault

EACH = 99                       # each census is void
READY, RUNNING, GONE = "ready", "running", "gone"

# What makes it sound.  Each can be left out.
RULES = {
    "claims are adds": "a claim counts as an add",
    "holds are adds": "when the counter hears of a census, so does each hold",
    "let go looks": "who lets go of the counter looks for a new census first",
    "let go looks late": "with the row written",
    "moved is an add": "so does a running row that is written on another page",
    "number first": "a census has its number before it reads the first page",
    "length second": "and before it looks how many pages there are",
    "one moment": "a page is read at one moment",
    "being changed counts": "a row that a transaction is changing is running",
    "own counts": "also one that the session's own is changing",
    "being changed is unsure": "but the counter is doubtful then",
    "adds are unsure": "and if there are adds",
    "who leaves is unsure": "and if somebody has left",
    "uncounted is unsure": "and if somebody has without saying so",
    "one tells": "a step that was done is not told again",
    "twice is unsure": "the counter is doubtful if a step was told twice",
    "another file": "a table that was rewritten is read anew",
    "reset": "rows that were changed by SQL are counted anew",
    "spent": "a census is of no use to a counter that was known since",
    "spent is not idle": "such a counter is not freed, if it is not known",
    "unsure is not idle": "which also is unsure",
    "found is not idle": "nor one of which something was found",
    "an add is not idle": "nor one that has adds",
    "void for those who don't count": "a call that does not count makes the "
                                      "census void",
    "void first": "before it looks whether it has to count",
    "no such calls": "what counts is a census that begins when they are over",
    "limited": "and when there is a limit",
}

# The second does what the first does, where it matters.
SPARE = {"spent is not idle": "unsure is not idle"}

# a task: what it is and where, and what an open transaction makes of it; and
# in which version
Task = namedtuple("Task", "status page by becomes at version")
Limit = namedtuple("Limit", "known running doubtful count_no as_of census"
                   " found adds unsure spent holds pins")
NEW = Limit(False, 0, False, 0, 0, 0, 0, 0, False, False, 0, 0)
# what is said of the census by a look
View = namedtuple("View", "as_of census counted repeated")
UNSEEN = View(0, 0, False, False)
# a session: where it is in its script, and what it has begun; of a census
# the phase, the number, the page and how many there are
Session = namedtuple("Session", "at view count_no phase number page length"
                     " tasks versions")
BEGUN = Session(0, UNSEEN, 0, "", 0, 0, 0, (), ())
State = namedtuple("State", "number next length done resets began uncounted"
                   " teller repeated file of_file limited calls"
                   " void limit tasks sessions left")


# The steps of what a worker does with a task: (step, its arguments).  Who
# goes on to "any" commits or aborts.
def claim(task, page=0):
    return [("look",), ("enter",), ("write", task, RUNNING, page), ("relook",),
            ("let go",)]


def take(task, page=0):
    return [("look",), ("enter",), ("write", task, GONE, page), ("relook",),
            ("let go",)]


def finish(task):
    return [("look",), ("hold",), ("write", task, GONE, 0), ("relook",),
            ("let go",)]


def extend(task, page):
    return [("look",), ("hold",), ("write", task, RUNNING, page), ("relook",),
            ("moved", task), ("relook",), ("let go",)]


def end(task, leaves_at_commit, leaves_at_abort, how=("commit", "abort")):
    return [("end", task, how, leaves_at_commit, leaves_at_abort)] + [
        ("look",), ("leave",)]


def uncounted_claim(task):
    return [("call",), ("void",), ("is limited",), ("write", task, RUNNING, 0),
            ("call ends",), ("end", task, ("commit",), 0, 0)]


# In each the tasks (what they are, and on which page), the scripts of the
# sessions, the pages; what may happen beside: free, rewrite, by_sql (a task
# that is made running by SQL), bump (somebody ends so much that counters are
# void).  first: the scripts of the sessions that do the census.
C = ["census"]
SCENARIOS = {
    "a claim": dict(
        tasks=[(READY, 0)], scripts=[claim(0) + end(0, 0, 1), C]),
    "a claim on another page": dict(
        tasks=[(READY, 1)], scripts=[claim(0, 0) + end(0, 0, 1), C]),
    "a finish": dict(
        tasks=[(RUNNING, 1)], scripts=[finish(0) + end(0, 1, 0), C]),
    "a take": dict(
        tasks=[(READY, 0)], scripts=[take(0) + end(0, 1, 1), C]),
    "an extension": dict(
        tasks=[(RUNNING, 1)], scripts=[extend(0, 0) + end(0, 0, 0), C]),
    "an extension to the end": dict(
        tasks=[(RUNNING, 0)], pages=1,
        scripts=[extend(0, 1) + end(0, 0, 0), C]),
    "an extension in its place": dict(
        tasks=[(RUNNING, 0)], scripts=[extend(0, 0) + end(0, 0, 0), C]),
    "claimed, extended and finished": dict(
        tasks=[(READY, 1)], scripts=[
            claim(0, 1) + end(0, 0, 1, ("commit",)) +
            extend(0, 0) + end(0, 0, 0, ("commit",)) +
            finish(0) + end(0, 1, 0), C]),
    "a claim and a finish": dict(
        tasks=[(READY, 0), (RUNNING, 1)], scripts=[
            claim(0) + end(0, 0, 1), finish(1) + end(1, 1, 0), C]),
    "two who count": dict(
        tasks=[(RUNNING, 0), (RUNNING, 1)],
        scripts=[finish(1) + end(1, 1, 0, ("commit",)), C, C]),
    "in the middle of one's own": dict(
        tasks=[(READY, 0), (RUNNING, 1)], scripts=[
            take(0) + C + end(0, 1, 1)]),
    "in the middle of one's own finish": dict(
        tasks=[(RUNNING, 0)], scripts=[finish(0) + C + end(0, 1, 0)]),
    "rewritten": dict(
        tasks=[(RUNNING, 1), (READY, 0)], scripts=[C], rewrite=1),
    "a purge": dict(
        tasks=[(READY, 0)], scripts=[
            [("write", 0, GONE, 0), ("end", 0, ("commit", "abort"), 0, 0)],
            C]),
    "made running by SQL": dict(
        tasks=[(READY, 0), (RUNNING, 1)], scripts=[C, C], by_sql=(0,)),
    "by SQL beside a claim": dict(
        tasks=[(READY, 0), (READY, 1)],
        scripts=[claim(0) + end(0, 0, 1), C], by_sql=(1,)),
    "freed": dict(
        tasks=[(READY, 0), (RUNNING, 1)],
        scripts=[claim(0) + end(0, 0, 1), C], free=2),
    "freed, and void": dict(
        tasks=[(READY, 0)],
        scripts=[claim(0) + end(0, 0, 1), C], free=1, bump=1),
    "void, and counted before": dict(
        tasks=[(RUNNING, 0)], scripts=[
            C + [("look",), ("refresh",)] + finish(0) + end(0, 1, 0)],
        free=1, bump=1),
    "void, and claimed before": dict(
        tasks=[(READY, 0)], scripts=[
            C + [("look",), ("refresh",)] + claim(0) + end(0, 0, 1)],
        free=1, bump=1),
    "ended without a word": dict(
        tasks=[(RUNNING, 0)], scripts=[
            finish(0) + [("end", 0, ("commit",), 0, 0), ("bump",)], C]),
    "a first limit": dict(
        tasks=[(READY, 0)], limited=False, scripts=[
            uncounted_claim(0), [("limit",), ("counted",)],
            C + [("look",), ("refresh",)]]),
    "a first limit, counted twice": dict(
        tasks=[(READY, 0)], limited=False, scripts=[
            uncounted_claim(0), [("limit",), ("counted",)],
            C + [("look",), ("refresh",)] + [("again",)] + C +
            [("look",), ("refresh",)]]),
}


class Model(Explorer):
    def __init__(self, name, rules):
        scenario = SCENARIOS[name]
        self.rules = rules
        self.scripts = [expand(script) for script in scenario["scripts"]]
        self.rewrite = scenario.get("rewrite", 0)
        left = (self.rewrite, scenario.get("free", 0), scenario.get("bump", 0),
                len(scenario.get("by_sql", ())))
        self.by_sql = scenario.get("by_sql", ())
        self.pages = scenario.get("pages", 2)
        limited = scenario.get("limited", True)
        self.start = State(
            number=0, next=0, length=None, done=0, resets=1, began=0,
            uncounted=0, teller=None, repeated=0, file=0, of_file=0,
            limited=limited, calls=0, void=0, limit=NEW,
            tasks=tuple(Task(status, page, None, None, None, 0)
                        for status, page in scenario["tasks"]),
            sessions=tuple(BEGUN for _ in self.scripts), left=left)

    def on(self, rule):
        return rule in self.rules

    # ---- what is promised

    def check(self, s):
        limit = s.limit
        if (limit.known and limit.as_of == s.resets + s.uncounted
                and limit.running < self.truth(s)):
            raise Fault(f"too little: {limit.running} for {self.truth(s)}")
        if any(session.at < len(script)
               for session, script in zip(s.sessions, self.scripts)):
            return
        limit = self.refreshed(s, limit, self.view(s))
        if limit.known and limit.running < self.truth(s):
            raise Fault(f"too little: {limit.running} for {self.truth(s)}")
        if (limit.known and not limit.doubtful
                and limit.running != self.truth(s)):
            raise Fault(f"not exact: {limit.running} for {self.truth(s)}")
        if not limit.known and s.limited:
            self.known_in_the_end(s)

    def known_in_the_end(self, s):
        """All of the census that is left is done, and begun again if need be:
        a counter that was not counted since can be then."""
        if s.void == EACH:
            s = s._replace(void=s.number)
        me = len(s.sessions)
        spent = s.limit.spent or s.void >= s.number
        if spent:
            s = self.begin(s)
        s = s._replace(sessions=s.sessions + (BEGUN,))
        for _ in range(30):
            if s.done == s.number and s.number and self.is_current(s):
                break
            steps = list(self.census_step(s, me))
            if not steps:
                raise Fault("stranded: the census does not go on")
            s = steps[-1][1]
        limit = self.refreshed(s, s.limit, self.view(s))
        if not limit.known:
            raise Fault("stranded: the counter does not get known")
        if limit.running < self.truth(s):
            raise Fault(f"too little: {limit.running} for {self.truth(s)}")

    @staticmethod
    def truth(s):
        return sum(task.status == RUNNING or
                   (task.status == READY and task.by is not None)
                   for task in s.tasks)

    # ---- the counter

    def view(self, s):
        void = s.void if self.on("void for those who don't count") else 0
        counted = (s.done == s.number > void and
                   (s.began == s.resets or not self.on("reset")) and
                   (s.limited or not self.on("limited")))
        repeated = (s.number > 0 and s.repeated >= s.number and
                    self.on("twice is unsure"))
        return View(s.resets + s.uncounted, s.number, counted, repeated)

    def refreshed(self, s, limit, view):
        if limit.as_of < view.as_of:
            unsure = limit.unsure or (limit.as_of != 0 and
                                      self.on("uncounted is unsure"))
            limit = limit._replace(as_of=view.as_of, known=False,
                                   unsure=unsure)
        if limit.census < view.census:
            adds = limit.holds if self.on("holds are adds") else 0
            limit = limit._replace(census=view.census, found=0, adds=adds,
                                   unsure=False, spent=False)
        if (view.counted and not limit.known
                and not (limit.spent and self.on("spent"))
                and limit.census == view.census and limit.as_of == view.as_of):
            doubtful = limit.unsure or view.repeated
            if self.on("adds are unsure"):
                doubtful |= limit.adds > 0
            limit = limit._replace(
                known=True, running=limit.found + limit.adds, spent=True,
                doubtful=doubtful, count_no=limit.count_no + 1)
        return limit

    @staticmethod
    def added(limit):
        return limit if limit.spent else limit._replace(adds=limit.adds + 1)

    def is_idle(self, limit, census):
        if limit.pins or limit.holds:
            return False
        if limit.known:
            return limit.running == 0
        if limit.census < census:
            return True
        return not ((limit.spent and self.on("spent is not idle")) or
                    (limit.found and self.on("found is not idle")) or
                    (limit.adds and self.on("an add is not idle")) or
                    (limit.unsure and self.on("unsure is not idle")))

    # ---- all that can happen

    def steps(self, s):
        rewrite, free, bump, by_sql = s.left
        if rewrite and not any(task.by is not None for task in s.tasks) and \
                not any(self.is_in_census(s, me)
                        for me in range(len(s.sessions))):
            yield "rewrite", s._replace(
                file=s.file + 1, left=(rewrite - 1, free, bump, by_sql),
                tasks=tuple(task._replace(page=1 - task.page)
                            for task in s.tasks))
        if free and s.limit != NEW and self.is_idle(s.limit, s.number):
            yield "free", s._replace(limit=NEW, left=(rewrite, free - 1, bump,
                                                      by_sql))
        if bump:
            yield "counters are void", s._replace(
                uncounted=s.uncounted + 1,
                left=(rewrite, free, bump - 1, by_sql))
        if by_sql:
            i = self.by_sql[by_sql - 1]
            if s.tasks[i].status == READY and s.tasks[i].by is None:
                yield "by SQL", s._replace(
                    resets=s.resets + 1,
                    left=(rewrite, free, bump, by_sql - 1),
                    tasks=replaced(s.tasks, i,
                                   s.tasks[i]._replace(status=RUNNING)))
        for me, session in enumerate(s.sessions):
            if session.at == len(self.scripts[me]):
                continue
            what, *arguments = self.scripts[me][session.at]
            if what == "census":
                steps = self.census_step(s, me)
            else:
                steps = getattr(self, "do_" + what.replace(" ", "_"))(
                    s, me, session, *arguments)
            for name, after in steps:
                yield f"{'    ' * me}{me + 1}: {name}", after

    @staticmethod
    def then(s, me, session, limit=None, on=1, **values):
        session = session._replace(at=session.at + on, **values)
        s = s._replace(sessions=replaced(s.sessions, me, session))
        return s if limit is None else s._replace(limit=limit)

    # What workers do.

    def do_look(self, s, me, session):
        yield "look", self.then(s, me, session, view=self.view(s))

    def do_relook(self, s, me, session):
        if self.on("let go looks late"):
            yield from self.do_look(s, me, session)
        else:
            yield "look no more", self.then(s, me, session)

    def kept(self, session):
        """A look is used once, if it is to be a new one each time."""
        return UNSEEN if self.on("let go looks late") else session.view

    def do_refresh(self, s, me, session):
        yield "refresh", self.then(
            s, me, session, self.refreshed(s, s.limit, session.view),
            view=UNSEEN)

    def do_enter(self, s, me, session):
        limit = self.refreshed(s, s.limit, session.view)
        count_no = 0
        if self.on("claims are adds"):
            limit = self.added(limit)
        if limit.known:
            limit = limit._replace(running=limit.running + 1)
            count_no = limit.count_no
        limit = limit._replace(holds=limit.holds + 1, pins=limit.pins + 1)
        yield "enter", self.then(s, me, session, limit, count_no=count_no,
                                view=self.kept(session))

    def do_hold(self, s, me, session):
        limit = self.refreshed(s, s.limit, session.view)
        count_no = limit.count_no if limit.known else 0
        limit = limit._replace(holds=limit.holds + 1, pins=limit.pins + 1)
        yield "hold", self.then(s, me, session, limit, count_no=count_no,
                                view=self.kept(session))

    def do_write(self, s, me, session, i, becomes, page):
        task = s.tasks[i]._replace(by=me, becomes=becomes, at=page)
        yield f"write {i}: {becomes}", self.then(
            s._replace(tasks=replaced(s.tasks, i, task)), me, session)

    def do_moved(self, s, me, session, i):
        limit = self.refreshed(s, s.limit, session.view)
        if s.tasks[i].page != s.tasks[i].at and self.on("moved is an add"):
            limit = self.added(limit)
        yield "moved", self.then(s, me, session, limit,
                                 view=self.kept(session))

    def do_let_go(self, s, me, session):
        limit = s.limit
        if self.on("let go looks"):
            limit = self.refreshed(s, limit, session.view)
        limit = limit._replace(holds=limit.holds - 1)
        yield "let go", self.then(s, me, session, limit, view=UNSEEN)

    def do_end(self, s, me, session, i, how, at_commit, at_abort):
        for end_is in how:
            task = s.tasks[i]
            leaves = at_abort
            if end_is == "commit":
                task = task._replace(status=task.becomes, page=task.at,
                                     version=self.next_version(task))
                leaves = at_commit
            task = task._replace(by=None, becomes=None, at=None)
            after = s._replace(tasks=replaced(s.tasks, i, task))
            yield f"{end_is} {i}", self.then(after, me, session,
                                             tasks=(leaves, end_is))

    def next_version(self, task):
        """It matters to who reads a page for a while."""
        return 0 if self.on("one moment") else 1 - task.version

    def do_leave(self, s, me, session):
        n, end_is = session.tasks
        limit = self.refreshed(s, s.limit, session.view)
        if limit.known and limit.count_no == session.count_no:
            limit = limit._replace(running=limit.running - n)
        elif n:
            limit = limit._replace(doubtful=True)
        if n and self.on("who leaves is unsure"):
            limit = limit._replace(unsure=True)
        limit = limit._replace(pins=limit.pins - 1)
        # a session whose transaction was rolled back does no more
        on = 1 if end_is == "commit" else len(self.scripts[me]) - session.at
        yield "leave", self.then(s, me, session, limit, on=on, tasks=(),
                                 view=UNSEEN)

    def do_bump(self, s, me, session):
        limit = s.limit._replace(pins=s.limit.pins - 1)
        yield "counters are void", self.then(
            s._replace(uncounted=s.uncounted + 1), me, session, limit,
            tasks=())

    # Who does not count, and a first limit.

    def do_call(self, s, me, session):
        yield "call", self.then(s._replace(calls=s.calls + 1), me, session)

    def do_void(self, s, me, session):
        if self.on("void first"):
            yield "void", self.then(s._replace(void=EACH), me, session)
        else:
            yield "is limited?", self.then(s, me, session, number=s.limited)

    def do_is_limited(self, s, me, session):
        limited = s.limited if self.on("void first") else session.number
        if limited:
            yield "is", self.then(s._replace(calls=s.calls - 1), me, session,
                                  on=len(self.scripts[me]) - session.at)
        elif self.on("void first"):
            yield "is not", self.then(s, me, session)
        else:
            yield "void", self.then(s._replace(void=EACH), me, session)

    def do_call_ends(self, s, me, session):
        yield "call ends", self.then(s._replace(calls=s.calls - 1), me,
                                     session)

    def do_limit(self, s, me, session):
        yield "limit", self.then(s._replace(limited=True), me, session)

    def do_counted(self, s, me, session):
        if s.calls and self.on("no such calls"):
            return
        void = s.number if s.void == EACH else s.void
        yield "all count", self.then(s._replace(void=void), me, session)

    def do_again(self, s, me, session):
        yield "again", self.then(self.begin(s), me, session)

    # The census.

    def is_in_census(self, s, me):
        return s.sessions[me].phase != ""

    def is_current(self, s):
        return ((s.began == s.resets or not self.on("reset")) and
                (s.of_file == s.file or not self.on("another file")))

    def begin(self, s):
        return s._replace(number=s.number + 1, next=0, length=None,
                          began=s.resets, of_file=s.file, teller=None)

    @staticmethod
    def length_of(s):
        return 1 + max(max(task.page, task.at or 0) for task in s.tasks)

    def census_step(self, s, me):
        """The next step of a session that goes on to the end."""
        session = s.sessions[me]
        phases = {"": self.take_step, "read": self.read_page,
                  "rest": self.read_rest, "tell": self.end_step}
        yield from phases[session.phase](s, me, session)

    def take_step(self, s, me, session):
        over = s.number > 0 and s.done == s.number
        if over and self.is_over(s):
            yield "the census is over", self.then(s, me, session)
            return
        if over or not s.number or not self.is_current(s):
            if not self.on("number first") or not self.on("length second"):
                # what comes after its number is read before
                early = session._replace(
                    phase="read", page=0, number=s.number + 1,
                    length=self.length_of(s))
                yield "look, and begin later", s._replace(
                    sessions=replaced(s.sessions, me, early))
                return
            s = self.begin(s)
        yield f"take page {s.next}", s._replace(sessions=replaced(
            s.sessions, me, session._replace(
                phase="read", number=s.number, page=s.next,
                length=s.length or self.length_of(s))))

    def is_over(self, s):
        return s.began == s.resets or not self.on("reset")

    def read_page(self, s, me, session):
        begun_late = session.number > s.number
        if begun_late and not self.on("length second"):
            # it is begun with a length that was seen before
            s = self.begin(s)
            yield "begin", s._replace(sessions=replaced(
                s.sessions, me, session._replace(number=s.number)))
            return
        first = self.seen(s, me, session.page, new=True)
        if not self.on("one moment"):
            versions = tuple(task.version for task in s.tasks)
            yield "read new versions", self.keep(
                s, me, session._replace(phase="rest", versions=versions),
                first)
            return
        after = self.keep(s, me, session, first +
                          self.seen(s, me, session.page, new=False))
        yield from self.tell(after, me, begun_late)

    def read_rest(self, s, me, session):
        # a version that has come since is behind us
        rest = tuple((i, unsure) for i, unsure
                     in self.seen(s, me, session.page, new=False)
                     if s.tasks[i].version == session.versions[i])
        after = self.keep(s, me, session._replace(versions=()),
                          session.tasks + rest)
        yield from self.tell(after, me, False)

    @staticmethod
    def done_with(session):
        return BEGUN._replace(at=session.at, count_no=session.count_no)

    @staticmethod
    def keep(s, me, session, tasks):
        return s._replace(sessions=replaced(
            s.sessions, me, session._replace(tasks=tasks)))

    def seen(self, s, me, page, new):
        """(task, is it unsure) of the versions on that page: the new ones, of
        open transactions, or those that were there before."""
        found = ()
        for i, task in enumerate(s.tasks):
            own = task.by == me and not self.on("own counts")
            if new and task.by is not None and task.at == page:
                if task.becomes == RUNNING:
                    found += ((i, True),)
            elif not new and task.page == page:
                if task.by is None:
                    found += ((i, False),) if task.status == RUNNING else ()
                elif not own and self.on("being changed counts"):
                    found += ((i, True),)
        return found

    def tell(self, s, me, begun_late):
        """The page was read: begin to tell."""
        session = s.sessions[me]
        if begun_late:
            s = self.begin(s)
        current = (session.number == s.number and session.page == s.next
                   and s.done != s.number)
        if not current and self.on("one tells"):
            yield "read in vain", s._replace(sessions=replaced(
                s.sessions, me, self.done_with(session)))
            return
        again = s.teller is not None and current
        repeated = s.number if again else s.repeated
        n = len({i for i, _ in session.tasks})
        unsure = (any(unsure for _, unsure in session.tasks)
                  and self.on("being changed is unsure"))
        told = session._replace(phase="tell", tasks=(),
                                view=View(s.resets + s.uncounted,
                                          session.number, n, unsure))
        yield f"read page {session.page}: {n}", s._replace(
            repeated=repeated, teller=me,
            sessions=replaced(s.sessions, me, told))

    def end_step(self, s, me, session):
        """Tell the counter; then, in the same step, the census."""
        view = session.view
        limit = self.refreshed(s, s.limit, view._replace(counted=False,
                                                         repeated=False))
        if limit.census == view.census and not limit.spent:
            unsure = (limit.unsure or view.repeated
                      or limit.as_of != view.as_of)
            limit = limit._replace(found=limit.found + view.counted,
                                   unsure=unsure)
        s = s._replace(limit=limit, sessions=replaced(
            s.sessions, me, self.done_with(session)))
        if s.repeated < s.number:
            yield "tell, and do not get through", s
        if (s.number == session.number and s.next == session.page
                and s.done != s.number):
            end = session.page + 1
            s = s._replace(next=end, length=session.length, teller=None,
                           done=s.number if end >= session.length else s.done)
        yield "tell", s


def expand(script):
    return [(what,) if isinstance(what, str) else what for what in script]


def replaced(values, at, value):
    return values[:at] + (value,) + values[at + 1:]
