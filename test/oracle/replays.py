"""Short histories that once found a fault, or that resemble such a history.

Each history is one line. Semicolons separate its steps, each of which has a
session and a call.  Tasks have numbers in the order of their enqueues, from 1:
"release 3" releases the third task.  "a/1" is group a with priority 1, and
"a@2" is scheduled two instants ahead.  "a#k" has the dedup key k, and "a!1" one
attempt.  A limit without a group belongs to the queue.  In a history's name,
"own" means "of the same transaction".  A number after "lease", "release 3",
"fail 3" or "extend 3" is the number of instants until then.  "fail 3 dead" is
permanent, and a tick waits for the next instant.  At the end all tasks are
served.  All properties are checked throughout.
"""

import random
import re

from scenarios import Scenario

REPLAYS = {
    "own tasks after own pop":
        "0 begin; 0 enqueue a; 0 pop 16; 0 enqueue a a; 0 pop 19",
    "own tasks after own pop, committed":
        "0 begin; 0 enqueue a; 0 pop 8; 0 enqueue a a; 0 commit; 1 pop 20",
    "own tasks after own pop, two groups":
        "0 begin; 0 enqueue a; 0 pop 9; 0 enqueue b b a b a b b b; 0 commit;"
        "1 enqueue c c c; 1 pop 4; 1 pop 9",
    "own tasks between another session's":
        "2 begin; 2 enqueue a a a a a; 2 pop 3; 0 pop 2; 0 enqueue a;"
        "2 enqueue a; 2 pop 3",
    "own release":
        "0 begin; 0 enqueue a; 0 pop 2; 0 enqueue a; 0 release 1; 0 pop 3",

    # unused addresses
    "own purge, then an enqueue":
        "0 enqueue b a b; 0 begin; 0 purge a; 0 enqueue a; 0 pop 1; 0 pop 1",
    "own purge rolled back, with own tasks":
        "1 enqueue a b a a; 0 begin; 0 enqueue a; 0 purge a; 0 rollback;"
        "0 pop 2; 0 enqueue c c; 0 pop 4; 0 enqueue c; 0 release 1;"
        "0 release 2; 0 release 7; 0 pop 5",
    "purge that finds only own deleted tasks, then a rollback":
        "0 begin; 1 enqueue a a; 0 purge a; 0 pop 2; 0 rollback;"
        "1 enqueue a; 1 pop 2",
    "take of all tasks, another take, then a rollback":
        "0 enqueue a a a; 0 begin; 0 take 1; 0 rollback; 0 begin; 0 take 3;"
        "0 take 1; 0 rollback; 0 enqueue a b b b; 0 pop 1; 0 pop 1; 0 pop 9",
    "rollback on both sides of another session's task":
        "0 begin; 0 enqueue a; 1 enqueue a; 0 enqueue a; 0 rollback;"
        "1 enqueue a; 1 pop 20",
    "rollback on both sides, then a release":
        "0 enqueue a; 0 begin; 0 enqueue a; 0 enqueue a; 1 pop 1;"
        "1 enqueue a; 0 enqueue a; 0 rollback; 1 release 1; 1 pop 5",
    "rollback on both sides, another group waits":
        "0 begin; 0 enqueue a a; 2 enqueue b b a; 0 enqueue a; 0 rollback;"
        "1 pop 2; 1 pop 5",
    "two holes":
        "3 begin; 3 enqueue a; 2 enqueue b c d e b c d e f a a;"
        "3 enqueue a; 0 pop 11; 3 rollback; 0 release 4; 0 release 8;"
        "0 release 9; 0 release 11; 2 pop 2; 1 pop 2; 1 pop 9",
    "two holes, two transactions":
        "0 enqueue a a; 0 enqueue b b b b b; 0 pop 3; 1 begin; 1 enqueue a;"
        "2 begin; 2 release 1; 1 rollback; 2 rollback; 0 release 2; 0 pop 1;"
        "0 pop 1; 0 pop 5",
    "hole after the rollback of a release":
        "1 enqueue a a b a; 0 pop 2; 0 begin; 0 enqueue b; 1 enqueue b;"
        "0 release 3; 0 pop 2; 0 rollback; 0 release 1; 0 release 3; 1 pop 2;"
        "0 pop 1; 0 pop 5",
    "hole where a task was served early":
        "2 begin; 2 enqueue a; 0 enqueue a; 2 rollback; 0 begin;"
        "0 enqueue b c b d e b f b d f g a g a h i; 2 enqueue a; 2 pop 7;"
        "0 pop 13; 0 enqueue a; 0 pop 11",
    "hole after another session's served task, behind own tasks":
        "2 begin; 2 enqueue a a; 0 enqueue a; 2 rollback; 0 pop 20; 0 begin;"
        "0 enqueue b b a; 2 enqueue a; 1 pop 4; 0 pop 13",
    "hole behind tasks served in order":
        "1 enqueue a; 1 pop 19; 0 enqueue b b b b b b b b b b b; 0 release 1;"
        "0 pop 5; 0 begin; 0 enqueue b; 1 enqueue b a a a a a a a a;"
        "0 rollback; 1 pop 14; 1 purge b; 0 release 2; 0 release 3; 1 pop 2;"
        "1 pop 9",
    "hole below an open transaction's tasks":
        "0 enqueue a a a a a a a a a a a a; 2 purge a; 2 begin; 2 enqueue a;"
        "0 enqueue a b b a b b a b a b a b b b a b b b a; 3 pop 14;"
        "0 pop 12 per_group 3; 2 pop 2 per_group 4",

    # late
    "late tasks with others ahead":
        "2 begin; 1 begin; 2 enqueue a; 1 enqueue a a b b; 0 enqueue b;"
        "0 pop 1; 2 commit; 2 enqueue b a; 2 pop 1; 0 pop 1; 2 begin;"
        "2 enqueue a a a a a; 0 enqueue a; 2 release 1; 2 pop 1; 2 pop 1;"
        "0 enqueue b b; 2 pop 1; 2 rollback; 1 commit; 0 release 1;"
        "0 release 7; 2 pop 2; 1 pop 5; 0 pop 2",
    "late tasks, with a purge between":
        "0 enqueue a; 1 pop 1; 1 enqueue a; 0 enqueue b c; 1 enqueue d;"
        "0 begin; 1 pop 1; 1 enqueue d; 1 purge d; 0 pop 1;"
        "0 enqueue d b c c c; 1 enqueue d; 1 pop 1; 1 enqueue b; 1 pop 1;"
        "0 pop 1; 0 pop 1; 1 pop 1; 0 release 12; 0 commit; 0 release 2;"
        "0 release 4; 0 release 8; 1 pop 1; 1 pop 1; 1 pop 20",
    "late tasks of a group with weight, a turn in two calls":
        "0 weight a 3; 0 begin; 0 enqueue a a a a a a a a a a a a a a a a a a"
        " a a a a a a a a a a; 2 enqueue b; 0 pop 9; 0 commit; 1 enqueue b;"
        "0 complete 4; 1 pop 6; 0 release 2; 0 release 5; 0 release 30;"
        "1 pop 2; 0 pop 2; 0 pop 20",

    "hole after tasks served at once for a greater weight":
        "0 enqueue a b a b a b a; 0 begin; 0 pop 7; 0 rollback; 0 weight a 3;"
        "0 pop 9; 1 enqueue b b a; 0 pop 20",

    # per_group
    "per_group and a turn with nothing ready":
        "1 begin; 1 enqueue a; 1 pop 1; 1 enqueue b b b; 1 pop 1;"
        "0 enqueue b; 0 pop 1 per_group 2",
    "per_group, a started turn, then an earlier one":
        "0 weight a 1; 0 weight b 1; 0 weight c 5; 0 enqueue c; 0 pop 1;"
        "0 enqueue b c b; 0 pop 14 per_group 1",
    "per_group after a rollback":
        "0 enqueue b b b b b b b; 0 begin; 0 pop 10 per_group 3; 0 enqueue a;"
        "0 take 7; 0 pop 1 per_group 4; 0 rollback; 0 pop 19 per_group 1",

    # limits: a group at its limit cannot be parked, because this transaction has
    # completed one of its tasks.  The group has turns without a task before a
    # later turn of another group
    "limit: turns without a task before a distant one":
        "2 begin; 3 enqueue c; 3 pop 1; 3 enqueue a; 1 limit c 2;"
        "2 enqueue a a a a a a a a a a a a; 1 begin; 3 enqueue b; 3 begin;"
        "1 enqueue c; 1 complete 1; 3 enqueue a; 1 enqueue a; 3 enqueue c;"
        "3 pop 3; 1 pop 3",

    # limits: a check of a full group does not use a later turn of the group
    "limit: a check of a full group, then others":
        "0 limit a 1; 0 enqueue a a; 0 pop 5; 0 enqueue b b; 0 complete 1;"
        "0 pop 2",
    "limit: repeated checks of a full group in two lanes":
        "0 limit a 1; 0 enqueue a a a a/1; 0 pop 2; 0 complete 1; 0 pop 2;"
        "0 complete 2; 0 pop 2; 0 complete 3; 0 enqueue b/1 b/1 b/1 b/1;"
        "0 pop 4",
    "limit: a check while own settings are uncommitted":
        "0 limit a 1; 0 enqueue a a; 0 pop 1; 0 begin; 0 limit c 1; 0 pop 1;"
        "0 rollback; 0 complete 1; 0 enqueue b b; 0 pop 3",
    "limit: a check with a doubtful counter":
        "0 enqueue a a b; 0 begin; 0 pop 3; 1 enqueue b; 0 complete 1;"
        "1 limit b 1; 0 complete 3; 0 pop 3; 0 rollback; 1 pop 2",

    # limits: a group at its limit delays no other group
    "limit: more failed checks than groups":
        "0 limit a 1; 0 limit b 1; 0 limit c 1; 0 enqueue a b c; 0 pop 3;"
        "0 begin; 0 limit d 1; 0 enqueue a b c e e e e e e; 0 pop 20",
    "limit: reset, more useless counts than a call allows":
        "0 limit 2; 2 begin; 1 enqueue f/9; 2 pop 12; 0 reset;"
        "2 enqueue c/4 a/4 c/4 d/4 c/4 d/4 f/4 a/4 d/4 a/4 f/4 b/4 b/4 b/4;"
        "1 enqueue g/9; 2 pop 15",
    "limit: parked, then own settings raise the limit":
        "0 limit a 1; 0 begin; 0 enqueue a a; 0 pop 2; 0 limit a 2; 0 pop 1",
    "limit: own settings raise the limit, parked by another session":
        "0 pause a; 0 begin; 0 resume a; 1 enqueue a; 1 pop 1; 0 pop 1",

    # limits: the first limit is set during a transaction whose calls have not
    # counted running tasks
    "limit: the first one, after own completion":
        "0 enqueue a a a; 0 pop 1; 0 begin; 0 complete 1; 1 limit a 1;"
        "0 pop 1",
    "limit: the first one, after own completion, rollback":
        "0 enqueue a a a; 0 pop 1; 0 begin; 0 complete 1; 1 limit a 2;"
        "0 pop 1; 0 rollback; 1 pop 3",
    "limit: the first one, after own release":
        "0 enqueue a a a; 0 pop 1; 0 begin; 0 release 1; 1 limit a 1; 0 pop 1",
    "limit: the first one, after own take":
        "0 enqueue a a a; 0 begin; 0 take 1; 1 limit a 1; 0 pop 1",
    "limit: the first one, after own pop, rollback":
        "0 enqueue a a; 0 begin; 0 pop 1; 1 limit a 1; 0 pop 1; 0 rollback;"
        "1 pop 1",
    "limit: the first one, after own pop, commit":
        "0 enqueue a a a; 0 begin; 0 pop 1; 1 limit a 1; 0 pop 1; 0 commit;"
        "1 pop 1; 1 complete 1; 1 pop 1",
    "limit: the queue's first one, after own completion":
        "0 enqueue a b c; 0 pop 1; 0 begin; 0 complete 1; 1 max_running 1;"
        "0 pop 1",
    "limit: the queue's first one, after own pop, rollback":
        "0 enqueue a b; 0 begin; 0 pop 1; 1 max_running 1; 0 pop 1;"
        "0 rollback; 1 pop 1",

    # limits: the order of a group's waiting tasks
    "limit: waiting behind another session's uncommitted tasks":
        "0 limit a 2; 1 begin; 1 enqueue a a a; 0 enqueue a; 0 take 5;"
        "0 enqueue a; 1 commit; 0 pop 5; 0 complete 1; 0 complete 2; 0 pop 5",
    "limit: waiting behind own purge, rolled back":
        "0 enqueue a; 0 limit 3; 0 enqueue a a a; 0 pop 1; 0 pop 1; 1 begin;"
        "1 purge a; 1 pop 1; 0 enqueue a; 1 rollback; 0 complete 1;"
        "0 complete 2; 0 pop 2",
    "limit: waiting behind tasks enqueued during a pause":
        "1 begin; 1 pause a; 1 enqueue a; 0 enqueue a; 0 pop 6; 0 enqueue a;"
        "1 commit; 0 complete 2; 1 resume a; 1 pop 1",

    # limits: all tasks are counted again
    "limit: reset, then the rollback of a pop of an own task":
        "0 limit a 3; 0 begin; 0 enqueue a; 0 savepoint; 1 enqueue a a a;"
        "0 pop 7; 0 reset; 0 rollback_to 0; 1 pop 16",

    # limits of the queue
    "limit: max_running of a queue in use":
        "0 enqueue a a; 0 max_running 1; 0 pop 5; 0 complete 1; 0 pop 5",

    # due tasks, and limits
    "due: limited group, behind another session's uncommitted task":
        "0 limit a 1; 1 begin; 1 enqueue a; 2 enqueue a@1; 0 tick;"
        "2 enqueue a; 0 pop 8; 1 rollback; 0 complete 2; 0 pop 1",
    "due: limited group, before another session's committed task":
        "0 limit a 1; 1 begin; 1 enqueue a; 2 enqueue a@1; 0 tick;"
        "2 enqueue a; 0 pop 8; 1 commit; 0 complete 2; 0 pop 1",
    "expired: in a full queue, group limited later":
        "0 max_running 1; 0 enqueue a; 0 pop 1 lease 1; 0 limit a 1; 0 tick;"
        "0 pop 1",
    "expired: in a full queue, after a reset":
        "0 limit a 1; 0 max_running 1; 0 enqueue a; 0 pop 1 lease 1; 0 reset;"
        "0 tick; 0 pop 1",
    "expired: in a full queue, all attempts used up":
        "0 max_running 4; 0 max_attempts 1; 0 enqueue a b c d;"
        "0 pop 4 lease 1; 0 enqueue a b c d e; 0 tick; 0 pop 20",
    "expired: one taken over, still uncommitted":
        "0 max_running 3; 0 max_attempts 1; 1 enqueue a!2 b; 0 pop 3 lease 1;"
        "0 enqueue c; 0 tick; 0 enqueue d; 1 begin; 1 pop 2; 0 pop 10;"
        "0 pop 4",
    "expired: in a full queue, two of one group":
        "0 max_running 4; 0 enqueue a b c b; 0 pop 14 lease 1; 0 tick;"
        "0 pop 20",
    "expired: in a full queue, no group loses its turn":
        "0 weight b 3; 0 max_running 2; 0 enqueue a b b b b b b c c;"
        "0 pop 1 lease 1; 0 pop 1; 0 tick; 1 pop 1; 1 complete 1; 1 pop 1;"
        "1 complete 3; 1 pop 1; 1 complete 4; 1 pop 1; 1 complete 8;"
        "1 pop 1",
    "expired: in a full queue, repeatedly the first task":
        "0 max_running 2; 0 enqueue a b b b c; 0 pop 1 lease 1; 0 pop 1;"
        "0 tick; 1 pop 1 lease 1; 0 complete 2; 1 pop 1; 0 tick;"
        "1 pop 1 lease 1; 1 complete 5; 1 pop 1; 0 tick; 1 pop 1 lease 1;"
        "1 complete 3; 1 pop 1",
    "expired: in a full queue, each in turn, a tick apart":
        "0 max_running 3; 0 enqueue a b c a b c; 0 pop 3 lease 1; 0 tick;"
        "0 pop 1 lease 1; 0 pop 1 lease 3; 0 tick; 0 pop 1 lease 1;"
        "0 pop 1 lease 1; 0 complete 3; 0 pop 1; 0 tick; 0 pop 9; 0 tick;"
        "0 pop 9",
    "expired: a wait in the middle of a turn":
        "0 weight a 4; 0 enqueue a; 0 pop 1; 0 enqueue a a a a a a a a a b b b"
        " b b; 0 pop 1; 0 pop 1 lease 1; 0 tick; 0 wait; 0 pop 9",
    "expired: in a full group, enqueued before and after":
        "0 limit a 1; 0 enqueue a a; 0 pop 2 lease 1; 0 tick; 0 enqueue a;"
        "0 pop 5; 0 complete 1; 0 pop 5",
    "expired: more tasks than the limit":
        "0 enqueue a a a b b; 0 pop 5 lease 1; 0 limit a 1; 0 tick;"
        "0 pop 5; 0 pop 5",
    "expired: taken over, rolled back, taken over":
        "0 limit a 1; 0 enqueue a a b; 0 pop 3 lease 1; 0 tick; 0 begin;"
        "0 pop 5; 0 rollback; 1 pop 5",
    "expired: cancelled before, attempts used up":
        "0 max_attempts 1; 0 enqueue a a a b; 0 pop 4 lease 1; 0 cancel 2;"
        "0 tick; 0 pop 4",

    # hints are reset
    "reset between rolled back enqueues":
        "1 enqueue a a; 0 begin; 0 enqueue b; 1 enqueue b; 1 reset;"
        "0 enqueue b; 0 rollback; 1 pop 20",
    "reset during an own claim":
        "0 begin; 1 enqueue b a; 0 enqueue a; 1 purge a; 0 pop 9; 1 reset;"
        "1 pop 9; 0 commit; 0 check",
    "reset, then a release":
        "0 enqueue a a a a; 0 reset; 0 pop 3; 0 release 1; 0 pop 2",
    "reset with a later hole":
        "1 begin; 0 enqueue a b b; 1 enqueue a; 0 enqueue a; 0 reset;"
        "1 rollback; 1 pop 1; 0 pop 1; 0 pop 2",
    "reset with a later, older hole":
        "1 begin; 0 enqueue a b b b b; 1 enqueue a a a; 0 enqueue a;"
        "1 rollback; 0 reset; 1 pop 1; 0 pop 1; 0 pop 2; 0 pop 9",
    "reset before a rollback":
        "0 enqueue a; 0 begin; 0 enqueue a; 0 reset; 1 enqueue a b b;"
        "0 rollback; 1 pop 1; 0 pop 1; 0 pop 2",
    "reset with an uncommitted task far ahead":
        "2 enqueue a a b a a a b b b b; 2 begin; 0 purge a; 2 enqueue a;"
        "2 reset; 0 pop 3; 2 commit; 0 pop 20",
    "reset with an uncommitted task before a hole":
        "1 begin; 1 enqueue a; 0 begin; 0 enqueue c; 2 enqueue a; 0 pop 20;"
        "0 pop 11; 3 enqueue a; 2 reset; 1 enqueue b b; 1 pop 20",
    "reset with an uncommitted purge":
        "0 enqueue a a a; 1 begin; 1 purge a; 1 reset; 1 enqueue a;"
        "0 enqueue a; 1 rollback; 0 pop 1; 0 pop 1; 0 pop 5",
    "reset, rolled back, in the turn of a group with weight":
        "0 weight a 3; 1 enqueue a b; 1 begin; 0 limit 3; 1 take 1; 1 reset;"
        "1 enqueue c/5; 0 max_running 2; 1 pop 1; 1 rollback; 2 pop 20",
    "restart, then expired tasks are behind new ones":
        "0 enqueue a a a a; 0 take 3; 0 pop 1 lease 1; 0 restart; 0 tick;"
        "0 take 1; 0 enqueue a; 0 enqueue a@1; 0 pop 1 lease 3; 0 tick;"
        "0 pop 1 lease 2; 0 tick; 0 tick; 0 tick; 0 pop 1",
    "restart, then own completion of the most advanced task":
        "1 enqueue a/4 b/4 a/6; 1 pop 3; 1 restart; 1 limit b 2; 0 begin;"
        "0 complete 2; 0 enqueue a/4; 1 enqueue b/4 b/6; 1 pop 2",
}


def run_replay(driver, text):
    """Runs the steps of a history."""
    ids = []
    for step in text.split(";"):
        session, call, *rest = step.split()
        s = int(session)
        if call == "enqueue":
            for word in rest:
                ids.append(_enqueue(driver, s, word))
        elif call in ("pop", "take"):
            options = dict(zip(rest[1::2], map(int, rest[2::2])))
            lease = options.get("lease")
            driver.pop(s, int(rest[0]), options.get("per_group"),
                       call == "take", lease and (lease, False))
        elif call in ("complete", "release", "fail", "extend"):
            task = driver.model.tasks[ids[int(rest[0]) - 1]]
            if task in driver.model.held(s):
                _work(driver, s, call, task, *rest[1:])
        elif call == "cancel":
            driver.cancel(s, ids[int(rest[0]) - 1])
        elif call == "tick":
            driver.tick()
        elif call in ("redrive", "expire"):
            getattr(driver, call)(s, *map(int, rest))
        elif call == "weight":
            driver.set_weight(s, rest[0], int(rest[1]))
        elif call == "limit":
            driver.set_limit(s, rest[0] if rest[1:] else None, int(rest[-1]))
        elif call in ("max_running", "max_attempts"):
            getattr(driver, "set_" + call)(s, int(rest[0]))
        elif call in ("pause", "resume"):
            driver.set_paused(s, rest[0] if rest else None, call == "pause")
        elif call == "rollback_to":
            driver.rollback_to(s, int(rest[0]))
        elif call == "check":
            driver.check_queue()
        elif call == "reset":
            driver.reset_hints(s)
        elif call == "restart":
            driver.restart(crash=True)
        else:
            getattr(driver, call)(s, *rest)


def _enqueue(driver, s, word):
    parts = re.split("([/@#!])", word)
    marks = dict(zip(parts[1::2], parts[2::2]))
    when = marks.get("@")
    return driver.enqueue(s, parts[0], int(marks.get("/", 0)),
                          int(when) if when and when.isdigit() else when,
                          marks.get("#"), int(marks.get("!", 0)) or None)


def _work(driver, s, call, task, ahead=None):
    if call == "complete":
        driver.complete(s, task.id)
    elif call == "release":
        driver.release(s, task.id, ahead=int(ahead or 0))
    elif call == "extend":
        driver.extend(s, task.id, lease=ahead and (int(ahead), False))
    elif ahead == "dead":
        driver.fail(s, task.id, error="dead", dead=True)
    else:
        driver.fail(s, task.id, error="failed", ahead=int(ahead or 0))


def _replay(text):
    def function(driver):
        run_replay(driver, text)
        driver.drain(random.Random(6))
    return function


# a reset or restart affects all queues
REPLAY_SCENARIOS = [
    Scenario(f"replay: {name}", _replay(text), 4, exclusive=bool(
        re.search(r"\d (reset|restart)\b", text)))
    for name, text in REPLAYS.items()]
