package dev.fairq;

import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.Duration;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;

/** One attempt to run a task, for its handler.  Several threads of the handler may use it. */
public final class Task {
    /** Why a task must stop. */
    enum Stop { LOST, HANDED_BACK }

    static final String COLUMNS = """
            id, attempt, attempts_left, queue, group_key, priority, enqueued_at, lapses, coalesce(batch, 0)""";
    static final String TEXTS = "headers ->> 'task', payload::text, headers::text, progress::text";
    static final String COMPLETE = """
            SELECT fairq.complete(?::text::bigint, ?::text::int, ?::text::jsonb, took => ?::text::interval)""";

    final long id;
    final int attempt;
    final int attemptsLeft;
    final String queue;
    final String group;
    final int priority;
    final Instant enqueuedAt;
    final int lapses; // attempts whose lease expired
    final long batch;
    String name;
    String payload;
    String headers;
    String result;
    SQLException unreadable;

    private final Keeper keeper;
    private final Json json;
    private final Duration saveInterval;
    /** Released when the task may no longer wait for the server. */
    final CountDownLatch stopped = new CountDownLatch(1);
    final AtomicReference<Stop> stop = new AtomicReference<>();
    final AtomicBoolean claimed = new AtomicBoolean(); // set by the thread that ends the task
    volatile boolean completed; // by completeTx
    volatile boolean timedOut;
    volatile long begun = System.nanoTime();
    volatile Runnable leave; // called when the task has ended
    private Thread handler; // the thread that may be interrupted

    // the progress; saving also guards the order of saves
    private final Object saving = new Object();
    private String whole; // the progress as pop returned it, until load()
    private boolean loaded;
    private String plain; // without steps and cursor
    private final Map<String, String> steps = new LinkedHashMap<>();
    private String cursor;
    private boolean unsaved;
    private long savedAt = System.nanoTime() - Duration.ofDays(1).toNanos();

    Task(ResultSet row, Keeper keeper, Json json, Duration saveInterval) throws SQLException {
        id = row.getLong(1);
        attempt = row.getInt(2);
        attemptsLeft = row.getInt(3);
        queue = row.getString(4);
        group = row.getString(5);
        priority = row.getInt(6);
        enqueuedAt = row.getObject(7, OffsetDateTime.class).toInstant();
        lapses = row.getInt(8);
        batch = row.getLong(9);
        this.keeper = keeper;
        this.json = json;
        this.saveInterval = saveInterval;
    }

    void readTexts(ResultSet row, int first) throws SQLException {
        name = row.getString(first);
        payload = row.getString(first + 1);
        headers = row.getString(first + 2);
        whole = row.getString(first + 3);
    }

    public long id() {
        return id;
    }

    /** 1 for the first attempt. */
    public int attempt() {
        return attempt;
    }

    /** The number of attempts left if this one fails. */
    public int attemptsLeft() {
        return attemptsLeft;
    }

    public String queue() {
        return queue;
    }

    public String group() {
        return group;
    }

    /** The header "task"; null: none. */
    public String name() {
        return name;
    }

    public int priority() {
        return priority;
    }

    /** The id of its batch; 0: none. */
    public long batch() {
        return batch;
    }

    public Instant enqueuedAt() {
        return enqueuedAt;
    }

    /** The arguments, as JSON text. */
    public String payload() {
        return payload;
    }

    /** The arguments, as the worker's JSON library decodes them. */
    public <T> T payload(Class<T> type) throws Exception {
        return decode(payload, type);
    }

    /** The headers, as JSON text; null: none. */
    public String headers() {
        return headers;
    }

    /** Sets the result, as JSON text.  It is stored with the task if the queue has retain. */
    public void result(String json) {
        result = json;
    }

    /** Whether the handler should stop; its thread is also interrupted. */
    public boolean isStopped() {
        return stop.get() != null || timedOut;
    }

    /**
     * Completes the task in the handler's transaction, so that the task and its effects are done
     * exactly once.  If the method throws, roll back.  Otherwise commit, and return if the
     * commit succeeds.
     */
    public void completeTx(Connection db) throws SQLException {
        if (!Sql.is(db, COMPLETE, id, attempt, result, took())) {
            stop(Stop.LOST);
            throw new LostException();
        }
        completed = true;
    }

    /** The progress, with the steps and the cursor as its member "fairq"; null: none. */
    public String progress() throws SQLException, InterruptedException {
        synchronized (saving) {
            load();
            return encode(plain, steps, cursor);
        }
    }

    /**
     * Sets the progress, as JSON text, for fairq.tasks and later attempts.  If the task was
     * cancelled or its lease is lost, the method throws a {@link LostException}.
     */
    public void progress(String json) throws SQLException, InterruptedException {
        synchronized (saving) {
            load();
            save(json, steps);
            plain = json;
        }
    }

    /**
     * Calls run, saves its result, which is JSON text, and returns the result.
     * If an earlier attempt has saved a result of that name, the method returns
     * that result and does not call run.
     */
    public String step(String name, Callable<String> run) throws Exception {
        synchronized (saving) {
            load();
            if (steps.containsKey(name)) {
                return steps.get(name);
            }
        }
        String result = run.call();
        synchronized (saving) {
            Map<String, String> next = new LinkedHashMap<>(steps);
            next.put(name, result);
            save(plain, next);
            steps.put(name, result);
        }
        return result;
    }

    /** Does the same with a result that the worker's JSON library encodes and decodes. */
    public <T> T step(String name, Class<T> type, Callable<T> run) throws Exception {
        return decode(step(name, () -> Json.encode(json, run.call(), "the result of step " + name)), type);
    }

    /**
     * Records how far the work has got, as JSON text, for {@link #cursor()} of a later attempt.  Call
     * it often.  The method saves the cursor once per heartbeat.
     */
    public void checkpoint(String json) throws SQLException, InterruptedException {
        synchronized (saving) {
            load();
            cursor = json;
            unsaved = true;
            if (stop.get() == Stop.LOST) {
                throw new LostException();
            }
            if (System.nanoTime() - savedAt >= saveInterval.toNanos()) {
                save(plain, steps);
            }
        }
    }

    /** The value of the last checkpoint, perhaps of an earlier attempt. */
    public Optional<String> cursor() throws SQLException, InterruptedException {
        synchronized (saving) {
            load();
            return Optional.ofNullable(cursor);
        }
    }

    @Override
    public String toString() {
        return "task " + id + " of queue " + queue + ", group " + group + ", attempt " + attempt;
    }

    /** Saves the cursor of a task that fails or is released. */
    void saveRest(CountDownLatch ending) throws SQLException, InterruptedException {
        synchronized (saving) {
            if (unsaved) {
                store(ending, encode(plain, steps, cursor));
            }
        }
    }

    private <T> T decode(String text, Class<T> type) throws Exception {
        if (json == null) {
            throw new IllegalStateException("fairq: decoding needs the worker's setting json");
        }
        return json.read(text, type);
    }

    /**
     * Splits the progress of an earlier attempt.  The server splits it, since
     * the worker may have no JSON library.
     */
    private void load() throws SQLException, InterruptedException {
        if (loaded) {
            return;
        }
        if (whole == null || !whole.contains("\"fairq\"")) {
            plain = whole;
        } else {
            keeper.retrying(stopped, Database.CALL, db -> Sql.all(db, """
                    SELECT step, result::text, p #> '{fairq,cursor}',
                        CASE WHEN jsonb_typeof(p #> '{fairq}') IS NULL THEN p ELSE nullif(p - 'fairq', '{}') END
                    FROM (SELECT ?::text::jsonb) AS given(p) LEFT JOIN LATERAL
                        jsonb_each(CASE jsonb_typeof(p #> '{fairq,steps}') WHEN 'object' THEN p #> '{fairq,steps}' END)
                            AS each(step, result) ON true""", row -> {
                    if (row.getString(1) != null) {
                        steps.put(row.getString(1), row.getString(2));
                    }
                    cursor = row.getString(3);
                    plain = row.getString(4);
                    return null;
                }, whole));
        }
        loaded = true;
    }

    private void save(String nextPlain, Map<String, String> nextSteps) throws SQLException, InterruptedException {
        store(stopped, encode(nextPlain, nextSteps, cursor));
        unsaved = false;
        savedAt = System.nanoTime();
    }

    private void store(CountDownLatch ending, String progress) throws SQLException, InterruptedException {
        boolean held = keeper.retrying(ending, Database.CALL, db -> Sql.is(db,
                "SELECT fairq.set_progress(?::text::bigint, ?::text::int, ?::text::jsonb)" + keeper.briefly(),
                id, attempt, progress));
        if (!held) {
            stop(Stop.LOST);
            throw new LostException();
        }
    }

    private static String encode(String plain, Map<String, String> steps, String cursor) {
        if (steps.isEmpty() && cursor == null) {
            return plain;
        }
        Map<String, String> ours = new LinkedHashMap<>();
        if (!steps.isEmpty()) {
            ours.put("steps", Text.object(steps));
        }
        if (cursor != null) {
            ours.put("cursor", cursor);
        }
        return Text.merge(plain, Text.object(Map.of("fairq", Text.object(ours))),
                "the progress of a task with steps or a cursor");
    }

    Duration took() {
        return Duration.ofNanos(System.nanoTime() - begun);
    }

    /** Allows interrupts of this thread, until {@link #leave()}. */
    synchronized void enter() {
        handler = Thread.currentThread();
        if (isStopped()) {
            handler.interrupt();
        }
    }

    synchronized void leave() {
        handler = null;
        Thread.interrupted();
    }

    /** Asks the handler to stop.  Keeps the reason of the first call. */
    void stop(Stop why) {
        stop.compareAndSet(null, why);
        interrupt();
    }

    void timeOut() {
        timedOut = true;
        interrupt();
    }

    private synchronized void interrupt() {
        stopped.countDown();
        if (handler != null) {
            handler.interrupt();
        }
    }
}
