"""The limit protocol as atomic steps, for limits.py.

There are one queue, one lane, one group, a few tasks and a few backends.  A
step is atomic for all other backends.  It is a section of code under a
spinlock, an access to an atomic, or a read or a write of a row.  Another kind of
step is the moment at which a transaction's end becomes visible.  A section under
the lane's lock is one step.  Only fairq_lane_put_aside() is two steps, because
it takes a counter's mutex in the middle.  Steps have the names of the functions in C.

A state is a tuple: the shared part, then each backend's own.  A step is a
function (rules, shared, own, number) that changes both records, and names the
next step.  It returns NOT_NOW if it has to wait.

The model leaves out these parts, without losing a fault:

- Addresses.  All tasks have the places of waiting tasks, so the group is
  irregular while one of its tasks is ready.  Only the state of the group's
  hints exists: in service (IRREGULAR), put aside (PARKED), or not known to
  have a task (REGULAR).  A pop skips a REGULAR group.
- The queue's own counter.  The same functions maintain it and a group's
  counter, but it parks no group.
- The read of a row and its claim are one step.  A row that has changed in
  between counts as not ready.
- A load is one step, because load.py has its steps.  But it may come between
the moment at which a transaction's end is visible and the steps of that end
here.  A pop that cannot load does not try again, and skips the group.
- A pop is for one task, and ends if the group has none.  A pop of several tasks
  is like several calls.

A transaction is a tuple of calls, see CALLS.  The end "end" is a commit or an
abort.  With the end "any", the transaction may also stay open and idle.
"""

NO_LIMIT = 99
ABSENT, READY, RUNNING, GONE = range(4)         # the states of a row
REGULAR, IRREGULAR, PARKED = range(3)           # the group's states in its lane
NOBODY = -1
NO_TURN = -1
NOT_NOW = object()

SHARED = {
    # rows: (the committed state, the transaction that changes the row or
    # NOBODY, the new state)
    "rows": (),
    # limits: the committed settings in their order.  announced: the setting that the
    # version has announced.  setter, setting: the transaction that changes the
    # settings, and its new value.
    "limits": (NO_LIMIT,), "announced": 0, "setter": NOBODY, "setting": 0,
    # struct FairqHints, FairqDomain
    "version": 1, "limited": 0, "calls": 0, "uncounted": 0, "resets": 0,
    # struct FairqCounter.  late: transactions whose visible ends are not added
    # yet.  seen: those of them whose ends the load has seen
    "known": 0, "parked": 0, "committed": 0, "open": 0, "as_of": 0,
    "seen": 0, "late": 0,
    # struct FairqLane, and the group in it
    "lock": NOBODY, "lane_no": 0, "lane_resets": 0, "missed_ready": 0,
    "group": REGULAR, "group_version": 0,
    "too_late": 0,              # changes by SQL that no reset has published yet
}

OWN = {
    "call": 0, "kind": "", "step": "", "served": 0, "fault": "",
    # the queue in the cache, as read
    "most": NO_LIMIT, "version": 0,
    # the call in progress
    "counted": 0, "since": 0, "tried": 0, "lane_no": 0, "turn": 0, "row": 0,
    "as_of": 0, "running": 0, "changed": 0, "bits": 0,
    # the transaction's pending changes
    "ready": 0, "undone": 0, "settings": 0, "foreign": 0, "slots": 0,
    "leased": 0, "committed": 0,
}
IN_CALL = ("counted", "since", "tried", "lane_no", "turn", "row", "as_of",
           "running", "changed", "bits")

# The rules that make the protocol correct. Each can be left out.
RULES = {
    "enter_in_mutex": "the limit is checked and the slot taken in one section",
    "leave_after": "a slot is closed when the end is visible, not before",
    "seen": "ends that the load has seen are not added to its result",
    "park_in_mutex": "a group is checked and marked as parked in one section",
    "park_version": "no group is parked by settings of another version",
    "park_version_in_mutex": "the version is read under the counter's mutex",
    "park_not_pending": "no group is parked by uncommitted settings",
    "leave_unparks": "a slot that is closed unparks the group",
    "back_unparks": "a slot that is given back unparks the group",
    "version_after": "the version increases after the settings are visible",
    "version_first": "the version increases before the parked group is taken back",
    "settings_unpark": "a change of the settings unparks the group",
    "settings_order": "settings: the version is read before the rows",
    "settings_again": "settings: the version is read again between enter and claim",
    "limited": "a call that sees a limit makes the queue a limited one",
    "calls": "a load does not count during calls that do not count",
    "uncounted": "a load does not count during transactions with such calls",
    "limited_again": "a call that will not count announces that, then checks again",
    "ready_after": "a ready task is published once it is visible",
    "ready_version": "a ready task increases the group's version",
    "undone": "an abort also publishes ready tasks",
    "as_of": "a reset makes the counter invalid",
}


def visible(row, me):
    return row[2] if row[1] == me else row[0]


def is_running(row):
    """Whether the row's task truly runs: from its claim until its end is
    visible."""
    return row[0] == RUNNING or (
        row[1] != NOBODY and row[2] in (RUNNING, GONE))


def set_row(s, i, row):
    s.rows = s.rows[:i] + (row,) + s.rows[i + 1:]


# --------------------------------------------------------- counter.c


def refresh(rules, s, as_of):
    if s.as_of < as_of and "as_of" in rules:
        s.as_of = as_of
        s.known = 0


def running(s):
    return s.committed + s.open


def enter(rules, s, p, me):
    refresh(rules, s, s.resets)
    if not s.known:
        if p.most == 0:
            return no_room(rules, p)
        if p.most != NO_LIMIT:
            return "load" if not p.tried else "running_end"
    elif p.most != NO_LIMIT and running(s) >= p.most:
        return no_room(rules, p)
    elif "enter_in_mutex" not in rules:
        return "enter_unprotected"
    return enter_unprotected(rules, s, p, me)


def enter_unprotected(rules, s, p, me):
    s.open += 1
    p.since = s.announced
    p.row = 0
    return "settings_are_old" if "settings_again" in rules else "claim"


def no_room(rules, p):
    if "park_not_pending" in rules and p.settings:
        return "running_end"
    return "lane_park"


def settings_are_old(rules, s, p, me):
    if s.version == p.version:
        return "claim"
    p.turn = NO_TURN
    return "place_back" if p.counted else "running_end"


def load(rules, s, p, me):
    """Makes the whole load in one step, if this call may count.  Otherwise the
    call skips the group."""
    p.tried = 1
    if (s.calls and "calls" in rules or
            s.uncounted and "uncounted" in rules):
        return "running_end"
    s.committed = sum(row[0] == RUNNING for row in s.rows)
    s.seen, s.known, s.as_of = s.late, 1, s.resets
    return "enter"


# ---------------------------------------------------------- lane.c


def become_irregular(s):
    if s.group == REGULAR:
        s.group = IRREGULAR


def lane_known(s):
    return s.lane_resets == s.resets


def lane_ready(rules, s):
    if not lane_known(s):
        s.missed_ready = 1
        return
    become_irregular(s)
    if "ready_version" in rules:
        s.group_version += 1


def lane_park(rules, s, p, me):
    if s.lock != NOBODY:
        return NOT_NOW
    if s.lane_no != p.lane_no:
        return "running_end"
    if ("park_version" in rules and "park_version_in_mutex" not in rules and
            s.version != p.version):
        return "running_end"
    if s.group == REGULAR:
        s.group = IRREGULAR
        s.group_version += 1
    s.lock = me
    return "limit_park"


def limit_park(rules, s, p, me):
    refresh(rules, s, s.resets)
    full = p.most == 0 or (s.known and running(s) >= p.most)
    if (full and "park_version" in rules and
            "park_version_in_mutex" in rules and s.version != p.version):
        full = False
    if not full:
        s.lock = NOBODY
        return "running_end"
    if "park_in_mutex" not in rules:
        return "park_unprotected"
    return park_unprotected(rules, s, p, me)


def park_unprotected(rules, s, p, me):
    s.parked = 1
    s.group = PARKED
    s.lock = NOBODY
    return "running_end"


def unpark(s, p):
    if p.bits and s.group == PARKED:
        s.group = IRREGULAR
    p.bits = 0


def lane_note(rules, s, p, me):
    if s.lock != NOBODY:
        return NOT_NOW
    if not lane_known(s):
        p.as_of = s.resets
        p.row = 0
        return "read_head"
    p.lane_no = s.lane_no
    return "lane_next_turn"


def read_head(rules, s, p, me):
    row = s.rows[p.row]
    if row[1] in (NOBODY, me) and visible(row, me) == READY:
        p.running = 1
    p.row += 1
    return "read_head" if p.row < len(s.rows) else "lane_publish"


def lane_publish(rules, s, p, me):
    if s.lock != NOBODY:
        return NOT_NOW
    if not lane_known(s):
        s.lane_resets = p.as_of
        s.lane_no += 1
        s.group = IRREGULAR if p.running or s.missed_ready else REGULAR
        s.group_version += 1
        s.missed_ready = 0
    p.running = p.as_of = 0
    return "lane_note"


def lane_next_turn(rules, s, p, me):
    if s.lock != NOBODY:
        return NOT_NOW
    if s.lane_no != p.lane_no or s.group != IRREGULAR:
        return "running_end"
    p.turn = s.group_version
    p.row = 0
    if p.counted:
        return "enter"
    return "settings_are_old" if "settings_again" in rules else "claim"


def lane_settle(rules, s, p, me):
    if s.lock != NOBODY:
        return NOT_NOW
    if s.lane_no == p.lane_no and s.group_version == p.turn:
        s.group = REGULAR
    return "running_end"


# ------------------------------------------------------------- running.c


def running_begin(rules, s, p, me):
    if p.most != NO_LIMIT and "limited" in rules:
        s.limited = 1
    if s.limited or ("limited" not in rules and p.most != NO_LIMIT):
        p.counted = 1
        return first_of_call(p)
    return "calls_up"


def calls_up(rules, s, p, me):
    s.calls += 1
    p.since = s.announced
    return "limited_again" if "limited_again" in rules else first_of_call(p)


def limited_again(rules, s, p, me):
    if s.limited:
        s.calls -= 1
        p.counted = 1
    return first_of_call(p)


def first_of_call(p):
    return "lane_note" if p.kind in ("pop", "take") else "slot_is_left"


def slot_is_left(rules, s, p, me):
    """Records that a task has ended, after its row shows that."""
    note(p, 0, -1)
    return "running_end"


def running_end(rules, s, p, me):
    if p.counted:
        return "next"
    if p.changed:
        s.uncounted |= 1 << me
    return "calls_down"


def calls_down(rules, s, p, me):
    s.calls -= 1
    return "next"


def note(p, slots, leased):
    """Records changes of the counter for the transaction's end.  If the call
    does not count, records only that tasks have changed."""
    if not p.counted:
        p.changed = 1
        return
    p.slots += slots
    p.leased += leased


def place_back(rules, s, p, me):
    s.open -= 1
    if "back_unparks" in rules:
        p.bits, s.parked = s.parked, 0
    return "place_back_unpark" if p.bits else "lane_settle"


def place_back_unpark(rules, s, p, me):
    if s.lock != NOBODY:
        return NOT_NOW
    unpark(s, p)
    return "lane_settle"


# ---------------------------------------- pop.c, serve.c, outcome.c, admin.c


def queue_use(rules, s, p, me):
    if p.version == s.version:
        return "running_begin"
    if "settings_order" not in rules:
        return "read_settings"
    p.version = s.version
    return "read_settings"


def read_settings(rules, s, p, me):
    p.most = s.setting if s.setter == me else s.limits[-1]
    return "running_begin" if "settings_order" in rules else "read_version"


def read_version(rules, s, p, me):
    p.version = s.version
    return "running_begin"


def pending_show(rules, s, p, me):
    if s.lock != NOBODY:
        return NOT_NOW
    lane_ready(rules, s)
    return "queue_use"


def claim(rules, s, p, me):
    """Reads the next row, and takes its task if it is ready."""
    row = s.rows[p.row]
    if row[1] not in (NOBODY, me) or visible(row, me) != READY:
        p.row += 1
        if p.row < len(s.rows):
            return "claim"
        return "place_back" if p.counted else "lane_settle"
    set_row(s, p.row, (row[0], me, GONE if p.kind == "take" else RUNNING))
    p.served += 1
    p.undone = int("undone" in rules)
    note(p, 1, int(p.kind == "pop"))
    # strict: the claim must fit all settings in effect since it got its slot
    most = s.setting if s.setter == me else max(s.limits[p.since:])
    count = sum(map(is_running, s.rows))
    if count > most:
        p.fault = f"strict: {count} running, limited to {most}"
    return "running_end"


def task_find(rules, s, p, me):
    row = s.rows[p.row]
    if row[1] not in (NOBODY, me):
        return NOT_NOW
    return "task_delete" if visible(row, me) == RUNNING else "next"


def task_delete(rules, s, p, me):
    """If the call is a release, this step is fairq_task_return()."""
    row = s.rows[p.row]
    if row[1] not in (NOBODY, me):
        return NOT_NOW
    if visible(row, me) != RUNNING:
        return "next"
    set_row(s, p.row, (row[0], me, READY if p.kind == "release" else GONE))
    p.ready |= p.kind == "release"
    return "running_begin"


def table_insert(rules, s, p, me):
    set_row(s, p.row, (ABSENT, me, READY))
    p.ready = 1
    return "next"


def set_group(rules, s, p, me):
    if s.setter not in (NOBODY, me):
        return NOT_NOW
    s.setter, s.setting = me, p.running
    p.settings = 1
    p.version = 0
    return "next"


def reset_hints(rules, s, p, me):
    s.resets += 1
    return "next"


def foreign(rules, s, p, me):
    """SQL of a superuser changes the row of a running task."""
    row = s.rows[p.row]
    if row[1] not in (NOBODY, me):
        return NOT_NOW
    if row[0] == RUNNING:
        set_row(s, p.row, (row[0], me, p.running))
        p.foreign = 1
    return "next"


# --------------------------------------------------------- transaction.c


def end_steps(rules, p):
    """The steps of a transaction's end, in this order."""
    n = p.slots or p.leased and p.committed
    ready = p.ready if p.committed else p.undone
    say_ready = ["say_ready"] if ready else []
    version = ["version_up"] if p.settings else []
    back = []
    if n or (p.settings and "settings_unpark" in rules):
        back = ["say_leave", "say_unpark"]
    early = []
    if "ready_after" not in rules:
        early, say_ready = say_ready, []
    if "version_after" not in rules:
        early, version = early + version, []
    if n and "leave_after" not in rules:
        early, back = early + back, []
    late = version + back if "version_first" in rules else back + version
    reset = ["say_reset"] if p.foreign else []
    return (early + ["be_visible"] + say_ready + late + ["over"] + reset
            + ["unlock", "next"])


def next_of_end(rules, p):
    steps = end_steps(rules, p)
    return steps[steps.index(p.step) + 1]


def be_visible(rules, s, p, me):
    s.rows = tuple(
        row if row[1] != me else
        (row[2] if p.committed else row[0], NOBODY, ABSENT) for row in s.rows)
    if s.setter == me and p.committed:
        s.limits += (s.setting,)
    s.too_late += p.foreign
    s.late |= 1 << me
    return next_of_end(rules, p)


def say_ready(rules, s, p, me):
    if s.lock != NOBODY:
        return NOT_NOW
    lane_ready(rules, s)
    return next_of_end(rules, p)


def version_up(rules, s, p, me):
    s.version += 1
    return next_of_end(rules, p)


def say_leave(rules, s, p, me):
    refresh(rules, s, s.resets)
    s.open -= p.slots
    if p.committed and not ("seen" in rules and s.seen & 1 << me):
        s.committed += p.leased
    # this end has been added, so it is not late
    s.late &= ~(1 << me)
    if "leave_unparks" in rules or p.settings:
        p.bits, s.parked = s.parked, 0
    return next_of_end(rules, p)


def over(rules, s, p, me):
    s.uncounted &= ~(1 << me)
    s.late &= ~(1 << me)
    s.seen &= ~(1 << me)
    return next_of_end(rules, p)


def say_unpark(rules, s, p, me):
    if p.bits and s.lock != NOBODY:
        return NOT_NOW
    unpark(s, p)
    return next_of_end(rules, p)


def say_reset(rules, s, p, me):
    s.resets += 1
    s.too_late -= 1
    return next_of_end(rules, p)


def unlock(rules, s, p, me):
    """Releases the locks, so that waiting transactions continue."""
    if s.setter == me:
        s.setter, s.setting = NOBODY, 0
        s.announced = len(s.limits) - 1
    return "next"


CALLS = {                       # the first step, and what the argument means
    "pop": ("pending_show", None),
    "take": ("pending_show", None),
    "complete": ("task_find", "row"),
    "release": ("task_find", "row"),
    "enqueue": ("table_insert", "row"),
    "set_group": ("set_group", "running"),
    "reset_hints": ("reset_hints", None),
    "release_by_sql": ("foreign", "row"),
    "delete_by_sql": ("foreign", "row"),
}
ENDS = {
    "commit": ("commit",),
    "abort": ("abort",),
    "end": ("commit", "abort"),
    "any": ("commit", "abort", "open"),
}
