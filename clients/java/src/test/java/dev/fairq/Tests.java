package dev.fairq;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.time.ZoneId;
import java.time.ZonedDateTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.OptionalLong;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import javax.sql.DataSource;
import org.springframework.jdbc.datasource.DataSourceTransactionManager;
import org.springframework.jdbc.datasource.DataSourceUtils;
import org.springframework.jdbc.datasource.SingleConnectionDataSource;
import org.springframework.transaction.support.TransactionTemplate;

/**
 * The package's own tests: each method "test..." is one, and prints a line of TAP.  They need the
 * environment of test/cluster.
 *
 * <p>The comment of each test names a fault with which the test fails.
 */
public final class Tests {
    private static final long LIMIT = 60_000; // milliseconds that any event may take
    private static final String QUEUE = "java tests";

    private final Connection db;

    private Tests(Connection db) {
        this.db = db;
    }

    public static void main(String[] args) throws Exception {
        int number = 0;
        int failures = 0;
        Method[] methods = Tests.class.getDeclaredMethods();
        Arrays.sort(methods, Comparator.comparing(Method::getName));
        for (Method method : methods) {
            if (!method.getName().startsWith("test")) {
                continue;
            }
            Throwable problem = null;
            try (Connection db = Fairq.connect()) {
                Tests tests = new Tests(db);
                tests.sql("SELECT fairq.create_queue('" + QUEUE + "', retain => '1 day', backoff => '0.1 s')");
                try {
                    method.invoke(tests);
                } catch (InvocationTargetException wrapped) {
                    problem = wrapped.getCause();
                }
                if (!db.getAutoCommit()) {
                    db.rollback();
                    db.setAutoCommit(true);
                }
                tests.sql("SELECT fairq.drop_queue(queue, true) FROM fairq.queues");
            }
            failures += problem == null ? 0 : 1;
            System.out.println((problem == null ? "ok " : "not ok ") + ++number + " - " + method.getName());
            if (problem != null) {
                Problem.archived(problem).lines().forEach(line -> System.out.println("#   " + line));
            }
        }
        System.exit(failures == 0 ? 0 : 1);
    }

    // ---- producers

    /** Covers most arguments.  Fails if the payload is sent as the group. */
    void testEnqueue() throws Exception {
        Instant at = Instant.parse("2030-05-01T08:00:00.123456Z");
        long id = Fairq.enqueue(db, QUEUE, NewTask.named("send").group("bob").payload("{\"to\": \"x\"}").priority(3)
                .runAt(OffsetDateTime.parse("2030-05-01T10:00:00.123456+02:00")).dedupKey("key").maxAttempts(7)
                .cost(2.5f).headers(" {\"odd\": [1]} ").header("traceparent", "a\"b\\\n").expiresAt(at.plusSeconds(9))
                .dedupUntil("started").dedupFor(Duration.ofHours(1)));
        equal("send bob x 3 a\"b\\\n [1] 7 2.5 t t", text("SELECT concat_ws(' ', headers->>'task', group_key,"
                + " payload->>'to', priority, headers->>'traceparent', headers->>'odd', max_attempts, cost,"
                + " run_at = '" + at + "', expires_at = '" + at.plusSeconds(9) + "')"
                + " FROM fairq.tasks WHERE id = " + id));
        equal(OptionalLong.of(id), Fairq.find(db, QUEUE, "key"));
        equal(OptionalLong.empty(), Fairq.find(db, QUEUE, "other"));
        equal(new Fairq.Enqueued(id, false), Fairq.enqueueOrFind(db, QUEUE, task().dedupKey("key")));
        equal(id, Fairq.enqueue(db, QUEUE, task().dedupKey("key").replace().payload("5")));
        equal("5", text("SELECT payload FROM fairq.tasks WHERE id = " + id));
        equal(true, Fairq.reschedule(db, id, null));
        equal("t", text("SELECT run_at <= now() FROM fairq.tasks WHERE id = " + id));
        equal(true, Fairq.cancel(db, id));
        equal(false, Fairq.cancel(db, id));
        equal(true, Fairq.enqueueOrFind(db, QUEUE, NewTask.unnamed().emptyGroup()).added());
    }

    /** Fails if dedup_until or dedup_for is not sent. */
    void testKeys() throws Exception {
        Fairq.enqueue(db, QUEUE, task().dedupKey("until").dedupUntil("started"));
        Fairq.enqueue(db, QUEUE, task().dedupKey("for").dedupFor(Duration.ofHours(1)));
        List<OptionalLong> found = new ArrayList<>();
        Worker worker = new Worker().queues(QUEUE).handle("send",
                task -> found.add(Fairq.find(db, QUEUE, "until")));
        equal(2, worker.runTasks(db).size());
        equal(OptionalLong.empty(), found.get(0));
        equal(false, Fairq.enqueueOrFind(db, QUEUE, task().dedupKey("for")).added());
    }

    void testAfter() throws Exception {
        long first = Fairq.enqueue(db, QUEUE, task());
        long second = Fairq.enqueue(db, QUEUE, task().after(first).afterAny());
        equal("blocked", text("SELECT status FROM fairq.tasks WHERE id = " + second));
        long third = Fairq.enqueue(db, QUEUE, task().delay(Duration.ofHours(1)));
        equal("t", text("SELECT run_at > now() + interval '50 minutes' FROM fairq.tasks WHERE id = " + third));
    }

    /** Fails if dedup_keys are sent as the headers. */
    void testEnqueueBatch() throws Exception {
        List<Long> ids = Fairq.enqueueBatch(db, QUEUE, List.of(task().priority(2).dedupKey("k\"1\\"),
                NewTask.named("b").group("al,ice").payload("{\"a\": \"{\\\"}\"}").header("h", "1")
                        .delay(Duration.ofHours(1)).cost(3)));
        equal(2, ids.size());
        equal("2 send", text("SELECT concat_ws(' ', priority, headers->>'task') FROM fairq.tasks"
                + " WHERE id = " + ids.get(0)));
        equal(OptionalLong.of(ids.get(0)), Fairq.find(db, QUEUE, "k\"1\\"));
        equal("al,ice {\"} 1 b 3 t", text("SELECT concat_ws(' ', group_key, payload->>'a', headers->>'h',"
                + " headers->>'task', cost, run_at > now()) FROM fairq.tasks WHERE id = " + ids.get(1)));
        equal(2, Fairq.enqueueBatch(db, QUEUE, List.of(task().after(ids.get(0)), task().after(ids.get(0)))).size());
        equal(List.of(), Fairq.enqueueBatch(db, QUEUE, List.of()));
    }

    void testRefused() throws Exception {
        refused("no group", () -> Fairq.enqueue(db, QUEUE, NewTask.named("send")));
        refused("no group", () -> Fairq.enqueue(db, QUEUE, NewTask.named("send").group("")));
        refused("both a group", () -> Fairq.enqueue(db, QUEUE, task().emptyGroup()));
        refused("both runAt", () -> Fairq.enqueue(db, QUEUE, task().runAt(Instant.EPOCH).delay(Duration.ZERO)));
        refused("maxAttempts", () -> Fairq.enqueueBatch(db, QUEUE, List.of(task().maxAttempts(1))));
        refused("the same", () -> Fairq.enqueueBatch(db, QUEUE, List.of(task(), task().batch(5))));
        refused("delay", () -> Fairq.createBatch(db, QUEUE, task().delay(Duration.ZERO), false));
        refused("JSON object", () -> Fairq.enqueue(db, QUEUE, task().headers("[]")));
        refused("dedupKey", () -> Schedule.every(Duration.ofSeconds(1), task().dedupKey("a")));
        refused("does not exist", () -> Fairq.enqueue(db, "nowhere", task()));
    }

    void testBatches() throws Exception {
        long id = Fairq.createBatch(db, QUEUE, NewTask.named("then").group("bob"), true);
        Fairq.enqueueBatch(db, QUEUE, List.of(task().batch(id), task().batch(id)));
        equal(true, Fairq.closeBatch(db, id));
        equal(false, Fairq.closeBatch(db, id));
        long other = Fairq.createBatch(db, QUEUE, NewTask.named("then").group("bob"), false);
        Fairq.enqueue(db, QUEUE, task().batch(other));
        equal(1L, Fairq.cancelBatch(db, other));
    }

    void testQueues() throws Exception {
        Map<String, Map<String, ?>> queues = Map.of("java b", Map.of("separator", "/", "max_running", 2),
                QUEUE, Map.of("max_attempts", 1, "retain", Duration.ofHours(2), "shares", List.of(5, 1)));
        for (int i = 0; i < 2; i++) {
            Fairq.ensureQueues(db, queues);
            equal("1 02:00:00 {5,1}", text("SELECT concat_ws(' ', max_attempts, retain, shares)"
                    + " FROM fairq.queues WHERE queue = '" + QUEUE + "'"));
            equal("/", text("SELECT separator FROM fairq.queues WHERE queue = 'java b'"));
        }
        refused("separator", () -> {
            Fairq.ensureQueues(db, Map.of("java b", Map.of("separator", ":")));
            return null;
        });
    }

    void testRedrive() throws Exception {
        Worker worker = new Worker().queues(QUEUE).handle("send", task -> {
            throw new DeadException("no");
        });
        long first = Fairq.enqueue(db, QUEUE, task());
        Fairq.enqueue(db, QUEUE, task());
        Fairq.enqueue(db, QUEUE, NewTask.named("send").group("alice"));
        equal(3, worker.runTasks(db).size());
        equal(true, Fairq.redriveTask(db, first, Map.of("to_priority", 1)));
        equal(false, Fairq.redriveTask(db, first, Map.of()));
        equal(1L, Fairq.redrive(db, QUEUE, Map.of("group_key", "alice", "max_tasks", 5)));
        refused("no setting", () -> Fairq.redrive(db, QUEUE, Map.of("group", "alice")));
    }

    /** Fails if enqueue uses a connection of its own. */
    void testTransactions() throws Exception {
        db.setAutoCommit(false);
        Fairq.enqueue(db, QUEUE, task());
        db.rollback();
        db.setAutoCommit(true);
        equal("0", text("SELECT count(*) FROM fairq.tasks"));
        try (Connection own = Fairq.connect()) {
            DataSource source = new SingleConnectionDataSource(own, true);
            TransactionTemplate template = new TransactionTemplate(new DataSourceTransactionManager(source));
            for (boolean commits : new boolean[] {false, true}) {
                template.executeWithoutResult(status -> {
                    Connection connection = DataSourceUtils.getConnection(source);
                    try {
                        Fairq.enqueue(connection, QUEUE, task());
                    } catch (SQLException problem) {
                        throw new IllegalStateException(problem);
                    } finally {
                        DataSourceUtils.releaseConnection(connection, source);
                    }
                    if (!commits) {
                        status.setRollbackOnly();
                    }
                });
                equal(commits ? "1" : "0", text("SELECT count(*) FROM fairq.tasks"));
            }
        }
    }

    // ---- handlers, in a transaction

    /** Fails if runTasks does not store the result. */
    void testRunTasks() throws Exception {
        db.setAutoCommit(false);
        Worker worker = new Worker().queues(QUEUE).json(new GsonJson())
                .handle("send", Mail.class, (task, mail) -> task.result(Text.quote(mail.to)))
                .handle("dead", task -> {
                    throw new DeadException("no address", new IllegalStateException("deep"));
                })
                .handle("retry", task -> {
                    throw new RetryException("later", Duration.ofHours(1));
                })
                .handle("bad", task -> {
                    throw new IllegalStateException("a bug");
                });
        long id = Fairq.enqueue(db, QUEUE, NewTask.named("send").group("bob")
                .payload(new Mail("x"), new GsonJson()));
        long dead = Fairq.enqueue(db, QUEUE, NewTask.named("dead").group("bob"));
        long retry = Fairq.enqueue(db, QUEUE, NewTask.named("retry").group("bob"));
        List<Worker.Ran> ran = worker.runTasks(db);
        equal(3, ran.size());
        equal("completed \"x\"", text("SELECT concat_ws(' ', status, result) FROM fairq.tasks WHERE id = " + id));
        String error = text("SELECT error FROM fairq.tasks WHERE status = 'failed' AND id = " + dead);
        equal(true, error.contains("no address") && error.contains("deep") && error.contains("\n\tat dev.fairq.Tests"));
        equal("t", text("SELECT run_at > now() + interval '50 minutes' FROM fairq.tasks WHERE id = " + retry));
        Fairq.enqueue(db, QUEUE, NewTask.named("bad").group("bob"));
        refused("a bug", () -> worker.runTasks(db));
    }

    /** Fails if load() ignores the steps. */
    void testProgress() throws Exception {
        db.setAutoCommit(false);
        AtomicInteger calls = new AtomicInteger();
        Worker worker = new Worker().queues(QUEUE).json(new GsonJson()).handle("send", task -> {
            if (task.attempt() == 1) {
                task.progress("{\"pages\": 1}");
            }
            equal(5, task.step("one", Integer.class, () -> 4 + calls.incrementAndGet()));
            equal(task.attempt() == 1 ? "" : "[7]", task.cursor().orElse("").replace(" ", ""));
            if (task.attempt() == 1) {
                task.checkpoint("[6]");
                task.checkpoint("[7]");
                throw new RetryException("again", Duration.ZERO);
            }
            equal(true, task.progress().contains("pages"));
            refused("must be a JSON object", () -> {
                task.progress("5");
                return null;
            });
        });
        long id = Fairq.enqueue(db, QUEUE, task());
        equal(2, worker.runTasks(db).size());
        equal("{\"fairq\": {\"steps\": {\"one\": 5}, \"cursor\": [7]}, \"pages\": 1}",
                text("SELECT progress FROM fairq.tasks WHERE id = " + id));
    }

    // ---- workers

    /** Fails if completeTx does not call complete. */
    void testExactlyOnce() throws Exception {
        long id = Fairq.enqueue(db, QUEUE, task());
        with(new Worker().queues(QUEUE).handle("send", task -> {
            try (Connection own = Fairq.connect()) {
                own.setAutoCommit(false);
                task.result("\"once\"");
                task.completeTx(own);
                own.commit();
            }
        }), () -> waitFor("completed \"once\"",
                () -> text("SELECT concat_ws(' ', status, result) FROM fairq.tasks WHERE id = " + id)));
    }

    /**
     * Fails if a hook's exception ends the attempt, or if the worker does not
     * write its file.
     */
    void testHooksAndFile() throws Exception {
        Path file = Files.createTempFile("fairq", "alive");
        Files.delete(file);
        Hooks bad = new Hooks() {
            @Override
            public void before(Task task) {
                throw new IllegalStateException("a bad hook");
            }
        };
        List<String> lines = new ArrayList<>();
        long id = Fairq.enqueue(db, QUEUE, NewTask.unnamed().group("bob"));
        Worker worker = new Worker().queues(QUEUE).hooks(bad).alive(file).handleOthers(task -> { });
        with(worker.logger(new Lines(lines)), () -> {
            waitFor("completed", () -> text("SELECT status FROM fairq.tasks WHERE id = " + id));
            waitFor(true, () -> Files.exists(file));
        });
        equal(true, lines.toString().contains("a bad hook"));
        Files.delete(file);
    }

    /** Fails if status() returns no tasks. */
    void testStatus() throws Exception {
        CountDownLatch begun = new CountDownLatch(1);
        CountDownLatch seen = new CountDownLatch(1);
        long id = Fairq.enqueue(db, QUEUE, task());
        Worker worker = new Worker().name("me").queues(QUEUE).concurrency(2).handle("send", task -> {
            begun.countDown();
            seen.await();
        });
        equal(new Worker.Status("me", List.of(QUEUE), 2, false, List.of()), worker.status());
        with(worker, () -> {
            begun.await();
            Worker.Running running = worker.status().tasks().get(0);
            equal(new Worker.Running(id, 1, QUEUE, "bob", "send", running.time()), running);
            equal(1, worker.status().running());
            equal(false, running.time().isNegative() || worker.status().stopping());
            seen.countDown();
            waitFor(0, () -> worker.status().running());
        });
        equal(new Worker.Status("me", List.of(QUEUE), 2, true, List.of()), worker.status());
    }

    /** stop() releases the tasks that do not end in time.  Fails if the attempt fails instead. */
    void testStop() throws Exception {
        long id = Fairq.enqueue(db, QUEUE, task().maxAttempts(1));
        CountDownLatch begun = new CountDownLatch(1);
        with(new Worker().queues(QUEUE).grace(Duration.ofMillis(100)).handle("send", task -> {
            begun.countDown();
            Thread.sleep(LIMIT);
        }), begun::await);
        equal("queued", text("SELECT status FROM fairq.tasks WHERE id = " + id));
        equal("0", text("SELECT count(*) FROM fairq.workers WHERE '" + QUEUE + "' = ANY (queues)"));
    }

    /**
     * A task fails if the server refuses its retry.  The test fails if
     * Text.interval() throws an exception.
     */
    void testRetryOutOfRange() throws Exception {
        long id = Fairq.enqueue(db, QUEUE, task().maxAttempts(1));
        with(new Worker().queues(QUEUE).handle("send", task -> {
            throw new RetryException("later", Duration.ofSeconds(Long.MAX_VALUE));
        }), () -> waitFor("failed", () -> text("SELECT status FROM fairq.tasks WHERE id = " + id)));
        equal("-1 seconds 999000 microseconds", Text.interval(Duration.ofMillis(-1)));
        equal("-00:00:00.001", text("SELECT '-1 seconds 999000 microseconds'::interval"));
    }

    /**
     * A task fails if the server refuses its result or its progress, which are
     * nested too deeply.  The test fails if the worker retries the call
     * until the worker's end.
     */
    void testTooDeep() throws Exception {
        long result = Fairq.enqueue(db, QUEUE, NewTask.named("result").group("bob").maxAttempts(1));
        long progress = Fairq.enqueue(db, QUEUE, NewTask.named("progress").group("bob").maxAttempts(1));
        String deep = "[".repeat(500_000) + "]".repeat(500_000);
        with(new Worker().queues(QUEUE).handle("result", task -> task.result(deep))
                .handle("progress", task -> task.progress(deep)), () -> {
                    for (long id : new long[] {result, progress}) {
                        waitFor("failed", () -> text("SELECT status FROM fairq.tasks WHERE id = " + id));
                        equal("t", text("SELECT error LIKE '%stack depth%' FROM fairq.tasks WHERE id = " + id));
                    }
                });
    }

    /**
     * All workers of the process share a gate.  Fails if a worker whose logger
     * throws does not leave the gate.
     */
    void testGate() throws Exception {
        try {
            new Worker().queues(QUEUE).handleOthers(task -> { }).logger(new Lines(List.of())).run();
            throw new AssertionError("it runs");
        } catch (UnsupportedOperationException problem) {
            equal(null, problem.getMessage());
        }
        long id = Fairq.enqueue(db, QUEUE, task());
        sql("SELECT count(*) FROM fairq.pop('" + QUEUE + "', lease => '0.01 s')");
        Thread.sleep(50);
        with(new Worker().queues(QUEUE).handle("send", task -> { }),
                () -> waitFor("completed", () -> text("SELECT status FROM fairq.tasks WHERE id = " + id)));
    }

    /** An error ends a thread of the worker.  Fails if nothing replaces the thread. */
    void testThreads() throws Exception {
        AtomicInteger calls = new AtomicInteger();
        with(new Worker().queues(QUEUE).handle("send", task -> { })
                .schedule(Schedule.at(after -> {
                    if (calls.incrementAndGet() == 1) {
                        throw new NoClassDefFoundError("of a library");
                    }
                    return after.plusSeconds(1);
                }, ZoneId.of("UTC"), task())),
                () -> waitFor("t", () -> text("SELECT count(*) > 0 FROM fairq.tasks WHERE status = 'completed'")));
    }

    void testMissing() throws Exception {
        try {
            new Worker().queues("nowhere").handleOthers(task -> { }).run();
            throw new AssertionError("it runs");
        } catch (SQLException problem) {
            equal("QF001", problem.getSQLState());
            equal(true, problem.getMessage().contains("nowhere"));
        }
        refused("no queues", () -> {
            new Worker().handleOthers(task -> { }).run();
            return null;
        });
        refused("url", () -> {
            new Worker().url("mysql:x").queues(QUEUE).handleOthers(task -> { }).run();
            return null;
        });
    }

    // ---- without a server

    /** Fails if the first call of due() returns all missed times. */
    void testSchedules() throws Exception {
        Schedule minutes = Schedule.every(Duration.ofMinutes(5), NewTask.named("tidy"));
        Instant now = Instant.parse("2026-05-01T08:07:00Z");
        equal(List.of(Instant.parse("2026-05-01T08:05:00Z")), minutes.due(now));
        minutes.seen = now;
        equal(2, minutes.due(now.plusSeconds(600)).size());
        NewTask task = minutes.taskAt(now);
        equal("schedule schedule tidy 2026-05-01T08:07:00Z", task.group + " " + task.dedupKey);
        equal("{\"schedule\":\"tidy\",\"scheduled_at\":\"2026-05-01T08:07:00Z\",\"task\":\"tidy\"}", task.allHeaders());
        Schedule daily = Schedule.at(after -> {
            ZonedDateTime at = after.withHour(8).withMinute(30).withSecond(0).withNano(0);
            return at.isAfter(after) ? at : at.plusDays(1);
        }, ZoneId.of("Europe/Berlin"), NewTask.named("tidy"));
        equal(Instant.parse("2026-05-02T06:30:00Z"), daily.next(now));
    }

    void testArchived() throws Exception {
        Exception first = new Exception("first\0");
        first.initCause(new Exception("second", first)); // a circle
        String text = Problem.archived(first);
        equal(true, text.contains("second") && !text.contains("\0") && text.length() < 30_000);
        Exception silent = new Exception() {
            @Override
            public String toString() {
                throw new IllegalStateException();
            }
        };
        equal(true, Problem.archived(silent).contains("Tests"));
    }

    void testAddresses() throws Exception {
        Address address = new Address(null, new java.util.Properties(), "me", Map.of("PGHOST", "/run/x", "PGPORT",
                "5433", "PGDATABASE", "a b", "PGUSER", "bob"));
        equal("/run/x/.s.PGSQL.5433", address.properties.getProperty("socketFactoryArg"));
        equal("jdbc:postgresql://localhost:5433/a%20b", address.url);
        address = new Address(null, new java.util.Properties(), "me", Map.of("PGHOST", "a,b", "PGPORT", "5433",
                "PGUSER", "bob", "PGTARGETSESSIONATTRS", "read-write"));
        equal("jdbc:postgresql://a:5433,b:5433/bob primary",
                address.url + " " + address.properties.getProperty("targetServerType"));
        address = new Address(null, new java.util.Properties(), "me", Map.of("PGHOST", "a,::1", "PGPORT",
                "5433,5434", "PGUSER", "bob"));
        equal("jdbc:postgresql://a:5433,[::1]:5434/bob", address.url);
        refused("2 hosts", () -> new Address(null, new java.util.Properties(), "me", Map.of("PGHOST", "a,b",
                "PGPORT", "1,2,3")));
    }

    // ---- helpers

    private record Mail(String to) {
    }

    private interface Body {
        void run() throws Exception;
    }

    private record Lines(List<String> lines) implements System.Logger {
        @Override
        public String getName() {
            return "lines";
        }

        @Override
        public boolean isLoggable(Level level) {
            return true;
        }

        @Override
        public void log(Level level, java.util.ResourceBundle bundle, String text, Throwable thrown) {
            lines.add(text);
        }

        @Override
        public void log(Level level, java.util.ResourceBundle bundle, String format, Object... values) {
            lines.add(format);
        }
    }

    private static NewTask task() {
        return NewTask.named("send").group("bob");
    }

    private static void with(Worker worker, Body body) throws Exception {
        worker.start();
        try {
            body.run();
        } finally {
            worker.stop();
        }
    }

    private void sql(String sql) throws SQLException {
        try (Statement statement = db.createStatement()) {
            statement.execute(sql);
        }
    }

    private String text(String sql) throws SQLException {
        return Sql.one(db, sql, row -> row.getString(1));
    }

    private static void waitFor(Object wanted, Callable<Object> seen) throws Exception {
        long end = System.currentTimeMillis() + LIMIT;
        while (!wanted.equals(seen.call()) && System.currentTimeMillis() < end) {
            Thread.sleep(50);
        }
        equal(wanted, seen.call());
    }

    private static void equal(Object wanted, Object seen) {
        if (!Objects.equals(wanted, seen)) {
            throw new AssertionError("wanted " + wanted + ", and not " + seen);
        }
    }

    private static void refused(String part, Callable<?> call) {
        try {
            call.call();
        } catch (Exception problem) {
            equal(true, problem.getMessage().contains(part) || fail(problem));
            return;
        }
        throw new AssertionError("it was not refused: " + part);
    }

    private static boolean fail(Exception problem) {
        throw new AssertionError("another error", problem);
    }
}
