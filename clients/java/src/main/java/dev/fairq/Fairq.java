package dev.fairq;

import java.sql.Connection;
import java.sql.SQLException;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Properties;
import java.util.TreeMap;

/**
 * The functions for producers.  Each one uses a connection of the caller, and
 * the transaction that is open on it.  The commit of that transaction adds the
 * task; after a rollback there is no task.
 */
public final class Fairq {
    /** The version of this package. */
    public static final String VERSION = "1.0.0";

    private static final String ARGUMENTS = """
            (?::text, ?::text, ?::text::jsonb, priority => ?::text::int,
            run_at => coalesce(?::text::timestamptz, clock_timestamp() + ?::text::interval),
            dedup_key => ?::text, max_attempts => ?::text::int, cost => ?::text::real,
            headers => ?::text::jsonb, expires_at => ?::text::timestamptz,
            replace => ?::text::boolean, dedup_until => ?::text, dedup_for => ?::text::interval,
            batch => ?::text::bigint, after => ?::text::bigint[], after_any => ?::text::boolean)""";

    static final String ENQUEUE = "SELECT fairq.enqueue" + ARGUMENTS;

    private Fairq() {
    }

    /** Connects to the database of PGHOST, PGPORT, PGDATABASE, PGUSER and PGPASSWORD. */
    public static Connection connect() throws SQLException {
        return new Address(null, new Properties(), "fairq", System.getenv()).connect();
    }

    /** The id of a task, and whether the call has added it. */
    public record Enqueued(long id, boolean added) {
    }

    /**
     * Adds a task and returns its id.  If an unfinished task of the queue has the dedupKey,
     * the method adds nothing and returns that task's id.
     */
    public static long enqueue(Connection db, String queue, NewTask task) throws SQLException {
        return Sql.id(db, ENQUEUE, values(queue, task));
    }

    /** Does the same as enqueue, and also returns whether the task was added. */
    public static Enqueued enqueueOrFind(Connection db, String queue, NewTask task) throws SQLException {
        return Sql.one(db, "SELECT id, added FROM fairq.enqueue_or_find" + ARGUMENTS,
                row -> new Enqueued(row.getLong(1), row.getBoolean(2)), values(queue, task));
    }

    static Object[] values(String queue, NewTask task) {
        task.check();
        return new Object[] {queue, task.groupKey(), task.payload, task.priority, task.runAt, task.delay,
            task.dedupKey, task.maxAttempts, task.cost, task.allHeaders(), task.expiresAt, task.replace,
            task.dedupUntil, task.dedupFor, task.batch, after(task), task.afterAny};
    }

    private static List<Long> after(NewTask task) {
        return task.after.isEmpty() ? null : task.after;
    }

    /**
     * Adds many tasks at once, all or none, and returns their ids in the order of tasks.
     * maxAttempts, replace, dedupUntil and dedupFor cannot be set.  expiresAt, batch, after
     * and afterAny must be the same in all tasks.
     */
    public static List<Long> enqueueBatch(Connection db, String queue, List<NewTask> tasks) throws SQLException {
        if (tasks.isEmpty()) {
            return List.of();
        }
        NewTask first = tasks.get(0);
        List<List<Object>> columns = new ArrayList<>();
        boolean times = false;
        for (NewTask task : tasks) {
            checkBatch(task, first);
            times |= task.runAt != null || task.delay != null;
            Object[] row = {task.groupKey(), task.payload, task.runAt, Text.interval(task.delay), task.dedupKey,
                task.allHeaders(), task.priority, task.cost == null ? 1 : task.cost};
            for (int i = 0; i < row.length; i++) {
                if (columns.size() == i) {
                    columns.add(new ArrayList<>());
                }
                columns.get(i).add(row[i]);
            }
        }
        if (!times) { // the server takes either times or after
            columns.set(2, null);
            columns.set(3, null);
        }
        List<Object> values = new ArrayList<>(List.of(queue));
        values.addAll(columns);
        values.addAll(Arrays.asList(first.expiresAt, first.batch, after(first), first.afterAny));
        return Sql.all(db, """
                SELECT fairq.enqueue_batch(?::text, ?::text::text[], ?::text::jsonb[],
                    run_ats => (
                        SELECT array_agg(coalesce(t.run_at, clock_timestamp() + t.delay) ORDER BY t.n)
                        FROM unnest(?::text::timestamptz[], ?::text::interval[])
                            WITH ORDINALITY AS t(run_at, delay, n)),
                    dedup_keys => ?::text::text[], headers => ?::text::jsonb[],
                    priorities => ?::text::int[], costs => ?::text::real[],
                    expires_at => ?::text::timestamptz, batch => ?::text::bigint,
                    after => ?::text::bigint[], after_any => ?::text::boolean)""",
                row -> row.getLong(1), values.toArray());
    }

    private static void checkBatch(NewTask task, NewTask first) {
        task.check();
        List<String> set = task.fieldsOfEnqueue();
        NewTask.add(set, task.maxAttempts != null, "maxAttempts");
        NewTask.refuse(set, "in enqueueBatch");
        if (!Arrays.asList(task.expiresAt, task.batch, task.after, task.afterAny).equals(
                Arrays.asList(first.expiresAt, first.batch, first.after, first.afterAny))) {
            throw new IllegalArgumentException("fairq: expiresAt, batch, after and afterAny must be the same"
                    + " in all tasks of enqueueBatch");
        }
    }

    /**
     * Creates a batch, and adds the task that waits for its end.  Returns the id that both
     * have.  Tasks are added with this id as their batch, until closeBatch.  With
     * onSuccess, the waiting task fails as soon as a task of the batch ends without
     * success.
     */
    public static long createBatch(Connection db, String queue, NewTask then, boolean onSuccess)
            throws SQLException {
        then.check();
        List<String> set = then.fieldsOfEnqueue();
        NewTask.add(set, then.runAt != null, "runAt");
        NewTask.add(set, then.delay != null, "delay");
        NewTask.add(set, then.dedupKey != null, "dedupKey");
        NewTask.add(set, then.cost != null, "cost");
        NewTask.add(set, then.expiresAt != null, "expiresAt");
        NewTask.add(set, !then.after.isEmpty(), "after");
        NewTask.add(set, then.afterAny, "afterAny");
        NewTask.refuse(set, "in a task that waits for a batch");
        return Sql.id(db, """
                SELECT fairq.create_batch(?::text, ?::text, ?::text::jsonb, priority => ?::text::int,
                    on_success => ?::text::boolean, max_attempts => ?::text::int,
                    headers => ?::text::jsonb, batch => ?::text::bigint)""",
                queue, then.groupKey(), then.payload, then.priority, onSuccess, then.maxAttempts,
                then.allHeaders(), then.batch);
    }

    /**
     * Closes a batch: no more tasks can be added, and the waiting task runs once all others have
     * ended.  Returns false if the batch is closed, finished or unknown.
     */
    public static boolean closeBatch(Connection db, long id) throws SQLException {
        return Sql.is(db, "SELECT fairq.close_batch(?::text::bigint)", id);
    }

    /** Closes a batch, cancels those of its tasks that are not running, and returns their number. */
    public static long cancelBatch(Connection db, long id) throws SQLException {
        return Sql.id(db, "SELECT fairq.cancel_batch(?::text::bigint)", id);
    }

    /**
     * Cancels a task, at once if it is not running.  Otherwise the worker interrupts its handler
     * within a third of the lease.  Returns false if the task is finished or unknown.
     */
    public static boolean cancel(Connection db, long id) throws SQLException {
        return Sql.is(db, "SELECT fairq.cancel(?::text::bigint)", id);
    }

    /** Returns the id of the unfinished task of the queue that has the key. */
    public static OptionalLong find(Connection db, String queue, String dedupKey) throws SQLException {
        long id = Sql.id(db, "SELECT coalesce(fairq.find(?::text, ?::text), 0)", queue, dedupKey);
        return id == 0 ? OptionalLong.empty() : OptionalLong.of(id);
    }

    /**
     * Moves a task that is not running to another time; null is now.  Returns false if the task
     * is running, finished or unknown.
     */
    public static boolean reschedule(Connection db, long id, Instant runAt) throws SQLException {
        return Sql.is(db, "SELECT fairq.reschedule(?::text::bigint, coalesce(?::text::timestamptz, now()))",
                id, runAt);
    }

    /**
     * Enqueues failed tasks of a queue again, the oldest first, and returns their number.  The
     * options are arguments of redrive by their names in SQL, such as group_key and to_queue.
     */
    public static long redrive(Connection db, String queue, Map<String, ?> options) throws SQLException {
        Call call = new Call("redrive", "text", queue);
        options.forEach((name, value) -> call.add(name, Call.OPTIONS, value));
        return Long.parseLong(call.run(db));
    }

    /** Enqueues a failed task again.  Returns false if it has not failed, or its key is taken. */
    public static boolean redriveTask(Connection db, long id, Map<String, ?> options) throws SQLException {
        Call call = new Call("redrive", "bigint", id);
        options.forEach((name, value) -> call.add(name, Call.OPTIONS, value));
        return Boolean.parseBoolean(call.run(db));
    }

    /**
     * Creates the queues that are missing, and changes the given settings of the others.  Settings
     * are arguments of create_queue by their names in SQL.  A value is a number, a boolean, a
     * string, a Duration, or a list.  The separator of an existing queue must be the same.
     */
    public static void ensureQueues(Connection db, Map<String, ? extends Map<String, ?>> queues)
            throws SQLException {
        // in order, so that concurrent transactions do not deadlock
        for (Map.Entry<String, ? extends Map<String, ?>> queue : new TreeMap<>(queues).entrySet()) {
            ensureQueue(db, queue.getKey(), queue.getValue());
        }
    }

    private static void ensureQueue(Connection db, String queue, Map<String, ?> settings) throws SQLException {
        Call create = new Call("create_queue", "text", queue);
        Call alter = new Call("alter_queue", "text", queue);
        create.add("if_not_exists", Map.of("if_not_exists", "boolean"), true);
        settings.forEach((name, value) ->
                (name.equals("separator") ? create : alter).add(name, Call.SETTINGS, value));
        create.run(db);
        alter.run(db);
        Object wanted = settings.get("separator");
        if (wanted != null) {
            String is = Sql.one(db, "SELECT coalesce(separator, '') FROM fairq.queues WHERE queue = ?::text",
                    row -> row.getString(1), queue);
            if (!is.equals(wanted)) {
                throw new IllegalArgumentException("fairq: queue " + queue + " has the separator \"" + is
                        + "\", which cannot be changed to \"" + wanted + "\"");
            }
        }
    }
}
