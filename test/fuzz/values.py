"""Arguments for fairq's functions: usual values, and the edges of each type.

All arguments are texts, as a client sends them, and the server converts them.
"""

QUEUES = ["q1", "q2", "q3", "größe 💡"]
GROUPS = ["a", "b", "c", "d", "é", "日本", "t", "t/a", "t/b", "u/a"]
# more arguments of create_queue() for some queues
SETTINGS = {"q3": ["separator => '/'", "fair_by => 'time'"]}
GRANTED = ["fuzz_enqueue", "fuzz_work", "fuzz_manage"]

# The server's errors for a text that is not a value of an argument's type.  Such a
# call does not reach fairq.
INPUT_STATES = {
    "22003", "22007", "22008", "22015", "22021", "22P02", "22P05", "2202E",
    "42601", "42602", "42704", "54000", "54001", "22000", "22023", "54023",
}

INTEGERS = ["0", "1", "-1", "2", "3", "10", "999", "1000", "1001", "32768",
            "2147483647", "-2147483648", "2147483648", "4611686018427387904",
            "9223372036854775807", "-9223372036854775808",
            "9223372036854775808"]
REALS = ["0", "-0", "1", "-1", "0.1", "1e-45", "1e-46", "1e-30", "1000000", "1000001",
         "3.4028235e38", "3.5e38", "NaN", "infinity", "-infinity", "one", ""]
INTERVALS = ["0", "1 microsecond", "-1 microsecond", "1 ms", "1 second",
             "1 day", "-1 day", "100 years", "36600 days",
             "100 years 1 microsecond", "101 years", "1 month -30 days",
             "1 month -30 days -1 microsecond", "-1 month 31 days",
             "1 month -744 hours", "-1200 months 36600 days",
             "2147483647 months", "-2147483648 months", "2147483647 days",
             "-2147483648 days", "2147483647 months -2147483648 days",
             "9223372036854775807 microseconds",
             "-9223372036854775808 microseconds",
             "178956970 years 7 months 2147483647 days",
             "infinity", "-infinity", "1 fortnight", ""]
TIMES = ["infinity", "-infinity", "now", "epoch", "yesterday", "tomorrow",
         "2000-01-01 00:00:00+00", "3000-01-01 00:00:00+00",
         "1999-12-31 23:59:59.999999+00", "9999-12-31 23:59:59.999999+00",
         "294276-12-31 23:59:59.999999+00", "294277-01-01 00:00:00+00",
         "4713-11-24 00:00:00+00 BC", "4714-11-24 00:00:00+00 BC",
         "5874897-01-01", "noon-ish"]
TEXTS = ["", " ", "a", "NULL", "{}", "'", '"', "\\", "%s", "\n", "a\tb",
         "x" * 57, "x" * 58, "é" * 28, "é" * 29, "x" * 63, "y" * 1024,
         "y" * 1025, "é" * 512, "💡" * 256, "e\u0301", "\u202e", "\U0010ffff"]
ROLES = GRANTED + ["0", "-", "1", "4294967295", "4294967296", "-1",
                   "nobody_at_all", "", "public", "none", '"', "a.b"]
UUIDS = ["00000000-0000-0000-0000-000000000001", "00000000000000000000000000000002",
         "{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}", "ffffffff-ffff-ffff-ffff-ffffffffffff", "1", ""]
DOCUMENTS = ["{}", "[]", "null", "true", "0", '""', '{"a": 1}',
             "1e131071", "1e131072", '"\\u0000"', '"\\ud800"', "{", "NaN",
             '{"a": 1, "a": 2}', '{"": {"": {"": null}}}', "[1, [2, [3]]]"]


def huge_text(r):
    return r.choice(("z", "ß", "💡")) * r.choice((10_000, 250_000, 1_000_000))


def text(r):
    return huge_text(r) if r.random() < 0.02 else r.choice(TEXTS)


def document(r):
    way = r.random()
    if way > 0.03:
        return r.choice(DOCUMENTS)
    if way > 0.02:
        depth = r.choice((100, 1000, 3000, 100_000))
        return "[" * depth + "]" * depth
    if way > 0.01:
        return '{"x": "%s"}' % ("y" * r.choice((2000, 100_000, 4_000_000)))
    return "{%s}" % ", ".join(f'"{i}": [{i}]'
                              for i in range(r.choice((1000, 50_000))))


def array(r, element):
    """An array that mostly has one dimension, a lower bound of 1 and few
    elements."""
    n = r.choice((0, 1, 1, 2, 2, 3, 5))
    if r.random() < 0.01:
        n = r.choice((100, 3000))
    items = [element(r) for _ in range(n)]
    if n == 3000:
        items = [item if item is None else item[:100] for item in items]
    body = "{%s}" % ",".join(map(quote, items))
    way = r.random()
    if way < 0.1 and n > 0:
        low = r.choice((0, 2, -5, 1000, 2147483600, -2147483648))
        return f"[{low}:{low + n - 1}]={body}"
    if way < 0.15:
        return "{%s,%s}" % (body, body)
    if way < 0.17:
        return r.choice(("{", "{{{}}}", "{{}}", "[1:2]={1}", "{{1},{1,2}}"))
    return body


def quote(item):
    if item is None:
        return "NULL"
    return '"%s"' % item.replace("\\", "\\\\").replace('"', '\\"')


def one_of(edges):
    return lambda r: r.choice(edges)


def nullable(element, share=0.03):
    return lambda r: None if r.random() < share else element(r)


# The keys are names of pg_type. The suite fails if a type is missing.
TYPES = {
    "text": text,
    "int2": one_of(INTEGERS),
    "int4": one_of(INTEGERS),
    "int8": one_of(INTEGERS),
    "float4": one_of(REALS),
    "bool": one_of(["true", "false", "maybe"]),
    "interval": one_of(INTERVALS),
    "timestamptz": one_of(TIMES),
    "jsonb": document,
    "regrole": one_of(ROLES),
    "uuid": one_of(UUIDS),
}
for _name, _element in list(TYPES.items()):
    TYPES["_" + _name] = (lambda element: lambda r: array(r, element))(
        nullable(_element))


def usual(draw, share=0.8):
    """Draws mostly valid values, so that calls pass the checks of arguments."""
    return draw, share


def some_id(r, world):
    return str(r.choice(world.ids)) if world.ids else "1"


def usual_array(element):
    def draw(r, world):
        n = r.choice((0, 1, 2, 2, 2, 3, 10))
        return "{%s}" % ",".join(quote(element(r, world)) for _ in range(n))
    return draw


def a_choice(*choices):
    return lambda r, world: r.choice(choices)


# The keys are names of arguments. Other arguments are drawn by type alone.
NAMES = {
    "queue": usual(a_choice(*QUEUES), 0.9),
    "queues": usual(usual_array(a_choice(*QUEUES))),
    "group_key": usual(a_choice(*GROUPS), 0.85),
    "group_keys": usual(usual_array(a_choice(*GROUPS))),
    "payloads": usual(usual_array(a_choice("{}", "[1]"))),
    "dedup_keys": usual(usual_array(a_choice(None, "k1", "k2", "k3"))),
    "dedup_key": usual(a_choice(None, None, "k1", "k2", "k3")),
    "id": usual(some_id, 0.9),
    "ids": usual(usual_array(some_id)),
    "batch": usual(lambda r, world: r.choice([None, None, None, *map(str, world.batches)])),
    "after": usual(lambda r, world: r.choice([None, None, None, usual_array(some_id)(r, world)]), 0.95),
    "after_any": usual(a_choice(None, "true", "false")),
    "on_success": usual(a_choice(None, "true", "false")),
    "attempt": usual(a_choice(None, "1", "1", "2"), 0.9),
    "attempts": usual(usual_array(a_choice("1", "1", "2"))),
    "to_queue": usual(a_choice(None, *QUEUES)),
    "to_group": usual(a_choice(None, *GROUPS)),
    "to_priority": usual(a_choice(None, "0", "9")),
    "max_tasks": usual(a_choice("1", "2", "10", "100")),
    "per_group": usual(a_choice(None, "1", "2", "5")),
    "lease": usual(a_choice(None, "1 microsecond", "10 ms", "1 hour")),
    "timeout": usual(a_choice("0", "1 ms", "20 ms"), 0.9),
    "run_at": usual(a_choice(None, None, "now", "tomorrow", "infinity")),
    "expires_at": usual(a_choice(None, None, None, None, "now", "tomorrow", "infinity")),
    "retry_in": usual(a_choice(None, "0", "1 ms", "1 hour")),
    "delay": usual(a_choice(None, None, None, "0", "1 ms", "1 hour")),
    "backoff": usual(a_choice(None, "0", "1 ms", "1 hour")),
    "retain": usual(a_choice(None, "0", "1 ms", "1 hour")),
    "retain_failed": usual(a_choice(None, "0", "1 ms", "1 hour")),
    "separator": usual(a_choice(None, None, "/", ":", "//"), 0.9),
    "backoff_max": usual(a_choice(None, "0", "1 ms", "1 day")),
    "max_run_time": usual(a_choice(None, None, "0", "1 ms", "1 hour")),
    "older_than": usual(a_choice(None, "0", "1 ms", "1 hour")),
    "priority": usual(a_choice("0", "0", "0", "1", "9")),
    "max_attempts": usual(a_choice(None, "1", "3", "1000")),
    "concurrency": usual(a_choice(None, "0", "1", "3", "100")),
    "max_running": usual(a_choice(None, "0", "5", "100")),
    "weight": usual(a_choice(None, "0", "1", "3", "1000")),
    "block_length": usual(a_choice(None, None, "100", "1048576")),
    "fair_by": usual(a_choice(None, "tasks", "cost", "time"), 0.9),
    "cost": usual(a_choice(None, None, "1", "0.5", "1000")),
    "dedup_until": usual(a_choice(None, "finished", "started", "started"), 0.9),
    "dedup_for": usual(a_choice(None, "0", "1 ms", "1 hour")),
    "replace": usual(a_choice(None, "true", "false")),
    "priorities": usual(usual_array(a_choice("0", "0", "1", "9"))),
    "run_ats": usual(usual_array(a_choice(None, "now", "tomorrow", "infinity"))),
    "costs": usual(usual_array(a_choice("1", "0.5", "1000"))),
    # {} is an object, and for enqueue_batch an empty array
    "headers": usual(a_choice(None, None, None, "{}")),
    "progress": usual(a_choice(None, "1", '{"pages": 1}')),
    "took": usual(a_choice(None, None, "0", "1 ms", "1 hour")),
    # the tables check stored logs, so views never pass an invalid one
    "log": usual(a_choice(None, "[0,1]", '[0,1,"w"]\n[0,2,null,true]'), 1),
    "rate": usual(a_choice(None, None, "0", "1000", "2147483647")),
    "max_rate": usual(a_choice(None, None, "0", "1000", "2147483647")),
    "burst": usual(a_choice(None, "1", "100", "2147483647")),
    "per": usual(a_choice(None, "1 ms", "1 second")),
    "until": usual(a_choice(None, None, "now", "tomorrow")),
    "group_no": usual(a_choice("0", "1", "2")),
    "shares": usual(a_choice(None, None, "{}", "{70,20,10}", "{1,1000000}")),
    "privilege": usual(a_choice("enqueue", "work", "monitor", "manage"), 0.9),
    "queue_id": usual(a_choice("1", "2", "3", "4", "5")),
    "block": usual(a_choice("0", "1", "1000")),
    "shard": usual(a_choice("1", "1", "2")),
    "expected": usual(a_choice(None, "1", "2")),
}


def draw(r, world, name, type_name):
    """Draws an argument: a text, or None for NULL."""
    usually, share = NAMES.get(name, (None, 0))
    if r.random() < share:
        return usually(r, world)
    if r.random() < 0.05:
        return None
    return TYPES[type_name](r)
