package dev.fairq;

import java.io.IOException;
import java.lang.System.Logger.Level;
import java.nio.file.Files;
import java.sql.Connection;
import java.sql.SQLException;
import java.time.Duration;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.Semaphore;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;

/** A worker that runs. */
final class Run {
    static final String FAIL = """
            SELECT fairq.fail(?::text::bigint, ?::text::int, ?::text, retry_in => ?::text::interval,
                dead => ?::text::bool, took => ?::text::interval)""";
    private static final Duration POP = Duration.ofSeconds(30);
    private static final Duration WAIT = Duration.ofSeconds(30);
    /** How long a handler may take to return after its time is over. */
    private static final Duration PATIENCE = Duration.ofSeconds(5);
    private static final Duration LEAST_LIMIT = Duration.ofSeconds(5);
    private static final Duration REGISTER = Duration.ofSeconds(10);
    private static final Duration PARTING = Duration.ofSeconds(1);
    private static final Duration LOOK = Duration.ofMinutes(1); // time between reads of the clock
    private static final Duration REFUSED = Duration.ofSeconds(5); // time until the next try

    private final Worker worker;
    private final Log log;
    private final CountDownLatch stopping;
    private final CountDownLatch ending = new CountDownLatch(1); // released: the keeper no longer retries
    private final Database popper; // for pop and fairq.wait
    private final Database keeper; // for calls that must not wait behind fairq.wait
    private final Semaphore slots;
    /** The monitor of this set guards the set and the next three fields. */
    private final Set<Task> tasks = new HashSet<>();
    private int deaf; // number of slots of handlers that ignore their timeout
    private long deafAt;
    private boolean left; // the worker no longer waits for handlers
    private final ExecutorService threads = Executors.newCachedThreadPool(daemons("task"));
    private final ScheduledThreadPoolExecutor timers = new ScheduledThreadPoolExecutor(1, daemons("timer"));
    private final List<Future<?>> services = new ArrayList<>();
    private boolean announced;
    private boolean toldOfPooler;
    private boolean careful; // the last pop had a task whose lease had expired
    private long refusedAt; // time of the first refused connection; 0: none

    Run(Worker worker, CountDownLatch stopping) {
        if (worker.queues.isEmpty()) {
            throw new IllegalArgumentException("fairq: the worker has no queues");
        }
        if (worker.handlers.isEmpty() && worker.others == null) {
            throw new IllegalArgumentException("fairq: the worker has no handlers");
        }
        if (worker.concurrency < 1 || worker.lease.isNegative() || worker.lease.isZero()) {
            throw new IllegalArgumentException("fairq: concurrency and lease must be positive");
        }
        this.worker = worker;
        this.log = worker.log;
        this.stopping = stopping;
        Address address = new Address(worker.url, worker.properties, worker.name, System.getenv());
        popper = new Database(address, log, "popper");
        keeper = new Database(address, log, "keeper");
        timers.setRemoveOnCancelPolicy(true);
        slots = new Semaphore(worker.concurrency);
        for (Schedule schedule : worker.schedules) {
            if (schedule.name == null) {
                throw new IllegalArgumentException("fairq: a schedule needs a name");
            }
            schedule.taskAt(Instant.EPOCH).check();
        }
    }

    static ThreadFactory daemons(String name) {
        AtomicInteger number = new AtomicInteger();
        return body -> {
            Thread thread = new Thread(body, "fairq " + name + " " + number.incrementAndGet());
            thread.setDaemon(true);
            return thread;
        };
    }

    /** A thread's work, which an interrupt ends. */
    private interface Service {
        void run() throws InterruptedException;
    }

    /** Runs a service in a thread.  After an error, such as a lack of memory,
     * the service runs again. */
    private void serve(Service service) {
        services.add(threads.submit(() -> {
            Throwable problem = null;
            do {
                try {
                    if (problem != null) {
                        log.error("a thread of the worker has failed; retrying", "error", Problem.line(problem));
                    }
                    service.run();
                    return null;
                } catch (RuntimeException | Error failure) {
                    problem = failure;
                }
            } while (sleep(ending, Database.RETRY));
            return null;
        }));
    }

    void run() throws SQLException {
        serve(this::renewLeases);
        if (worker.alive != null) {
            serve(this::keepAlive);
        }
        if (!worker.schedules.isEmpty()) {
            serve(this::keepSchedules);
        }
        threads.submit(() -> {
            stopping.await();
            popper.interrupt();
            return null;
        });
        boolean interrupted = false;
        try {
            popTasks();
        } catch (InterruptedException stop) {
            interrupted = true;
        } finally {
            stopping.countDown();
            finish();
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    // ---- taking tasks

    /** Takes tasks, at most as many as there are free slots. */
    private void popTasks() throws SQLException, InterruptedException {
        boolean registers = false;
        while (true) {
            int free = takeSlots();
            if (free == 0 || !Gate.PROCESS.share(stopping)) {
                return;
            }
            List<Task> popped = List.of();
            SQLException problem = null;
            Task suspect;
            try {
                try {
                    popped = pop(free);
                } catch (SQLException refused) {
                    problem = refused;
                }
                slots.release(free - popped.size());
                if (problem == null && !registers) {
                    registers = true;
                    serve(this::keepRegistered);
                }
                if (problem == null && !announced) {
                    announce();
                }
                suspect = startAll(popped);
            } finally {
                Gate.PROCESS.leave(); // also after an interrupt, since the gate outlives the worker
            }
            if (suspect != null) {
                startAlone(suspect);
            }
            if (problem == null && popped.isEmpty() && stopping.getCount() > 0) {
                problem = await();
            }
            if (stopping.getCount() > 0) {
                survive(problem);
            }
        }
    }

    /** Throws an error that must end the worker, and sleeps after other errors. */
    private void survive(SQLException problem) throws SQLException, InterruptedException {
        if (problem == null || Problem.isTransient(problem)) {
            refusedAt = 0;
        } else if (!Problem.isRefusal(problem)) {
            throw Problem.explain(problem);
        } else if (refusedAt == 0) {
            refusedAt = System.nanoTime();
        } else if (System.nanoTime() - refusedAt >= worker.giveUp.toNanos()) {
            throw Problem.explain(problem);
        }
        if (problem != null) {
            log.warn("retrying", "error", Problem.line(problem));
            sleep(stopping, Database.RETRY);
        }
    }

    /**
     * Waits for a free slot, and takes all free slots, or only one if the last
     * pop returned a task that must run alone.  Returns 0 if the worker stops.
     */
    private int takeSlots() throws InterruptedException {
        while (stopping.getCount() > 0) {
            if (slots.tryAcquire(100, TimeUnit.MILLISECONDS)) {
                if (stopping.getCount() == 0) {
                    return 0;
                }
                return careful ? 1 : 1 + slots.drainPermits();
            }
            synchronized (tasks) {
                if (deaf == worker.concurrency && System.nanoTime() - deafAt >= worker.giveUp.toNanos()) {
                    throw new IllegalStateException("fairq: all " + deaf + " handlers have ignored their timeouts"
                            + " for " + worker.giveUp.toSeconds() + " s: the worker has no slot left");
                }
            }
        }
        return 0;
    }

    /** Takes tasks.  A failed statement takes no task. */
    private List<Task> pop(int free) throws SQLException, InterruptedException {
        try {
            return popper.once(POP, db -> claim(db, worker, free, Task.TEXTS, row -> {
                Task task = newTask(row);
                task.readTexts(row, 10);
                return task;
            }));
        } catch (SQLException problem) {
            if (!Problem.isTooLarge(problem)) {
                throw problem;
            }
        }
        // a few kB of jsonb can expand to more text than the server can print
        List<Task> popped = popper.once(POP, db -> claim(db, worker, free, "NULL", this::newTask));
        for (Task task : popped) {
            readTexts(task);
        }
        return popped;
    }

    private Task newTask(java.sql.ResultSet row) throws SQLException {
        return new Task(row, keeper, worker.json, worker.lease.dividedBy(3));
    }

    static List<Task> claim(Connection db, Worker worker, int free, String texts, Sql.Row<Task> reader)
            throws SQLException {
        return Sql.all(db, "SELECT " + Task.COLUMNS + ", " + texts + " FROM fairq.pop(?::text::text[],"
                + " ?::text::int, lease => ?::text::interval, worker => ?::text)", reader,
                worker.queues, free, worker.lease, worker.name);
    }

    /**
     * Reads the texts of one task, after the server could not print those of
     * all tasks.  An error fails only this task.
     */
    private void readTexts(Task task) throws InterruptedException {
        try {
            popper.once(POP, db -> Sql.all(db, "SELECT " + Task.TEXTS + " FROM fairq.tasks WHERE id = ?::text::bigint",
                    row -> {
                        task.readTexts(row, 1);
                        return null;
                    }, task.id));
        } catch (SQLException problem) {
            task.unreadable = new SQLException("the payload or the headers cannot be read", problem);
        }
    }

    /** Sleeps until there may be tasks. */
    private SQLException await() throws InterruptedException {
        Duration poll = worker.poll;
        if (poll == null && popper.pooled) {
            poll = Duration.ofSeconds(1);
            if (!toldOfPooler) {
                toldOfPooler = true;
                log.warn("the connection goes through a pooler, so the worker looks for tasks every second;"
                        + " poll sets another interval, and zero waits");
            }
        }
        if (poll != null && !poll.isZero()) {
            sleep(stopping, poll);
            return null;
        }
        try {
            popper.await(worker.queues, WAIT, stopping);
            return null;
        } catch (SQLException problem) {
            return problem;
        }
    }

    /** Reports the start, once the first pop has succeeded. */
    private void announce() throws InterruptedException {
        try {
            String[] versions = popper.once(Database.CALL, db -> Sql.one(db,
                    "SELECT fairq.version(), current_setting('server_version')",
                    row -> new String[] {row.getString(1), row.getString(2)}));
            announced = true;
            log.info("worker of fairq starts", "worker", worker.name, "queues", worker.queues, "concurrency",
                    worker.concurrency, "client", Fairq.VERSION, "extension", versions[0], "server", versions[1]);
        } catch (SQLException problem) {
            return; // the worker tries again after the next pop
        }
    }

    /**
     * Starts tasks that were popped.  If leases of several tasks have expired
     * before, it returns one of these tasks, and releases the others.
     */
    private Task startAll(List<Task> popped) {
        Task suspect = null;
        for (Task task : popped) {
            synchronized (tasks) {
                tasks.add(task);
            }
            if (task.lapses > 0 && suspect == null) {
                suspect = task;
                continue;
            }
            if (task.lapses > 0) {
                task.stop(Task.Stop.HANDED_BACK);
            }
            Gate.PROCESS.join();
            start(task, Gate.PROCESS::leave);
        }
        careful = suspect != null;
        return suspect;
    }

    /** Starts a task when no other task runs. */
    private void startAlone(Task task) {
        Future<?> late = timers.schedule(() -> log.about(Level.WARNING, task, "the task's lease has expired"
                + " before, so it waits for all other tasks of the process; if one hangs, set a timeout"),
                worker.lease.toMillis(), TimeUnit.MILLISECONDS);
        Runnable leave = Gate.PROCESS.exclude(stopping);
        late.cancel(false);
        start(task, leave);
    }

    // ---- running a task

    private void start(Task task, Runnable leave) {
        task.leave = leave;
        threads.execute(() -> {
            try {
                perform(task);
            } finally {
                slots.release();
            }
        });
    }

    /** Runs a task.  If the handler ignores the task's timeout, another thread
     * ends the task meanwhile. */
    private void perform(Task task) {
        if (stopping.getCount() == 0) {
            task.stop(Task.Stop.HANDED_BACK); // no new task begins
        }
        if (task.stop.get() != null) {
            if (task.claimed.compareAndSet(false, true)) {
                end(task, new CancellationException(), Duration.ZERO);
            }
            return;
        }
        task.begun = System.nanoTime();
        Duration limit = worker.timeouts.getOrDefault(task.name, worker.timeout);
        Future<?> soft = null;
        Future<?> hard = null;
        if (!limit.isZero()) {
            soft = timers.schedule(task::timeOut, limit.toMillis(), TimeUnit.MILLISECONDS);
            hard = timers.schedule(() -> abandon(task, new TimeoutException(
                    "timed out after " + limit.toSeconds() + " s, and its handler continues")),
                    limit.plus(PATIENCE).toMillis(), TimeUnit.MILLISECONDS);
        }
        hook(task, "before", () -> worker.hooks.before(task));
        Throwable error = handle(task);
        if (soft != null) {
            soft.cancel(false);
            hard.cancel(false);
        }
        if (!task.claimed.compareAndSet(false, true)) {
            endure(task, -1, "the handler has returned at last");
            return;
        }
        if (error != null && task.timedOut) {
            error = new TimeoutException("timed out after " + limit.toSeconds() + " s").initCause(error);
        }
        conclude(task, error);
    }

    private Throwable handle(Task task) {
        task.enter();
        try {
            handler(worker, task).run(task);
            return null;
        } catch (Throwable error) { // also an Error fails only its task
            return error;
        } finally {
            task.leave();
        }
    }

    /** Returns the handler for the task's name, or a handler that fails. */
    static Handler handler(Worker worker, Task task) {
        if (task.unreadable != null) {
            return unread -> {
                throw task.unreadable;
            };
        }
        Handler handler = worker.handlers.getOrDefault(task.name, worker.others);
        return handler != null ? handler : unknown -> {
            throw new IllegalStateException(task.name == null ? "no handler for a task without a name"
                    : "no handler for task " + task.name);
        };
    }

    /** Ends a task whose handler has not returned in time. */
    private void abandon(Task task, Exception error) {
        if (task.claimed.compareAndSet(false, true)) {
            threads.execute(() -> {
                endure(task, 1, "the handler ignores the timeout and keeps its slot");
                conclude(task, error);
            });
        }
    }

    private void endure(Task task, int more, String line) {
        int free;
        synchronized (tasks) {
            deaf += more;
            deafAt = System.nanoTime();
            free = worker.concurrency - deaf;
            if (left) {
                return;
            }
        }
        log.about(Level.ERROR, task, line + ": " + free + " of " + worker.concurrency + " slots are left");
    }

    private void conclude(Task task, Throwable error) {
        Duration took = task.took();
        Task.Stop stop = task.stop.get();
        if (stop == Task.Stop.LOST || error != null && stop == Task.Stop.HANDED_BACK) {
            hook(task, "lost", () -> worker.hooks.lost(task));
        } else if (error != null) {
            hook(task, "error", () -> worker.hooks.error(task, error));
        } else {
            hook(task, "after", () -> worker.hooks.after(task));
        }
        end(task, error, took);
    }

    private void hook(Task task, String name, Runnable hook) {
        try {
            hook.run();
        } catch (RuntimeException | Error problem) {
            log.about(Level.ERROR, task, "the hook \"" + name + "\" failed", "error", Problem.line(problem));
        }
    }

    // ---- ending a task

    /** Sends the outcome of a task to the server.  Then a task that runs alone may begin. */
    private void end(Task task, Throwable error, Duration took) {
        try {
            if (error != null) {
                saveRest(task);
            }
            if (error == null && task.completed) {
                ended(task, "completed", took); // after a rollback the lease expires
            } else if (error == null) {
                endWell(task, took);
            } else if (task.stop.get() == Task.Stop.HANDED_BACK) {
                ended(task, "released", took);
                call("SELECT fairq.release(?::text::bigint, ?::text::int)", task.id, task.attempt);
            } else if (task.stop.get() == Task.Stop.LOST) {
                endLost(task, error, took);
            } else {
                endBadly(task, error, took);
            }
        } catch (SQLException | InterruptedException | RuntimeException problem) {
            log.about(Level.ERROR, task, "the task cannot be ended", "error", Problem.line(problem));
        } finally {
            task.leave.run();
            synchronized (tasks) {
                tasks.remove(task);
                tasks.notifyAll();
            }
        }
    }

    private void endWell(Task task, Duration took) throws SQLException, InterruptedException {
        boolean held;
        try {
            held = call(Task.COMPLETE, task.id, task.attempt, task.result, took);
        } catch (SQLException problem) {
            if (Problem.isTransient(problem)) {
                throw problem;
            }
            endBadly(task, Problem.explain(problem), took); // the server cannot store the result
            return;
        }
        if (held) {
            ended(task, "completed", took);
        } else {
            log.about(Level.WARNING, task, "the server refuses to complete the task: it was cancelled, or may run"
                    + " twice, since its lease was lost");
        }
    }

    private void endBadly(Task task, Throwable error, Duration took) throws SQLException, InterruptedException {
        failed(task, error, took);
        try {
            call(FAIL, failValues(task, error, took));
        } catch (SQLException problem) {
            if (Problem.isTransient(problem)) {
                throw problem;
            }
            call(FAIL, failValues(task, Problem.explain(problem), took)); // the retry's time is out of range
        }
    }

    /** Ends a task that the server has taken away.  After max_run_time the attempt counts. */
    private void endLost(Task task, Throwable error, Duration took) throws SQLException, InterruptedException {
        CancellationException stopped = new CancellationException(
                "stopped, since it was cancelled, its lease was lost, or its time (max_run_time) was over");
        stopped.initCause(error);
        if (call(FAIL, failValues(task, stopped, took))) {
            failed(task, stopped, took);
        } else {
            ended(task, "stopped", took);
        }
    }

    private void saveRest(Task task) {
        try {
            task.saveRest(ending);
        } catch (LostException lost) {
            return; // the end of the task reports the loss
        } catch (SQLException | InterruptedException | RuntimeException problem) {
            log.about(Level.ERROR, task, "the cursor cannot be saved", "error", Problem.line(problem));
        }
    }

    static Object[] failValues(Task task, Throwable error, Duration took) {
        Duration in = error instanceof RetryException ? ((RetryException) error).in : null;
        return new Object[] {task.id, task.attempt, Problem.archived(error), in, error instanceof DeadException,
            took};
    }

    private void ended(Task task, String outcome, Duration took) {
        log.about(Level.INFO, task, "task " + outcome, "duration", took.toMillis() + "ms", "outcome", outcome);
    }

    private void failed(Task task, Throwable error, Duration took) {
        boolean last = error instanceof DeadException || task.attemptsLeft == 0;
        String outcome = last ? "failed" : "retried";
        log.about(last ? Level.ERROR : Level.WARNING, task, "task " + outcome, "duration", took.toMillis() + "ms",
                "outcome", outcome, "error", Problem.line(error));
    }

    /**
     * Returns true if the attempt held the lease, or if the answer to an
     * earlier try was lost.
     */
    private boolean call(String sql, Object... values) throws SQLException, InterruptedException {
        AtomicBoolean unanswered = new AtomicBoolean();
        boolean held = keeper.retrying(ending, Database.CALL, db -> {
            try {
                return Sql.is(db, sql + keeper.briefly(), values);
            } catch (SQLException problem) {
                unanswered.compareAndSet(false, Problem.isLost(problem));
                throw problem;
            }
        });
        return held || unanswered.get();
    }

    /** The tasks that have not ended. */
    List<Worker.Running> running() {
        synchronized (tasks) {
            return tasks.stream().map(task -> new Worker.Running(task.id, task.attempt, task.queue, task.group,
                    task.name, task.took())).toList();
        }
    }

    // ---- services

    /** Renews the leases of running tasks, and stops tasks that have lost theirs. */
    private void renewLeases() throws InterruptedException {
        while (sleep(ending, worker.lease.dividedBy(3))) {
            try {
                extend();
            } catch (SQLException problem) {
                if (ending.getCount() > 0) {
                    log.error("leases cannot be renewed", "error", Problem.line(problem));
                }
            }
        }
    }

    private void extend() throws SQLException, InterruptedException {
        Duration third = worker.lease.dividedBy(3);
        // so that a connection without answers is closed before leases expire
        Duration limit = third.compareTo(Database.CALL) > 0 ? Database.CALL
                : third.compareTo(LEAST_LIMIT) < 0 ? LEAST_LIMIT : third;
        keeper.retrying(ending, limit, db -> {
            Map<Long, Task> held = heldTasks();
            List<Integer> attempts = new ArrayList<>();
            held.values().forEach(task -> attempts.add(task.attempt));
            Long[] lost = held.isEmpty() ? new Long[0] : Sql.one(db, "SELECT fairq.extend_batch("
                    + "?::text::bigint[], ?::text::int[], ?::text::interval)",
                    row -> (Long[]) row.getArray(1).getArray(), List.copyOf(held.keySet()), attempts, worker.lease);
            for (Long id : lost) {
                held.get(id).stop(Task.Stop.LOST);
            }
            return lost;
        });
    }

    /** The tasks by id.  If there are two attempts of a task, the older one has lost its lease. */
    private Map<Long, Task> heldTasks() {
        Map<Long, Task> held = new HashMap<>();
        synchronized (tasks) {
            for (Task task : tasks) {
                Task other = held.get(task.id);
                if (other != null && other.attempt > task.attempt) {
                    task.stop(Task.Stop.LOST);
                    continue;
                }
                if (other != null) {
                    other.stop(Task.Stop.LOST);
                }
                held.put(task.id, task);
            }
        }
        return held;
    }

    /** Keeps the worker in the view fairq.workers until the worker ends. */
    private void keepRegistered() throws InterruptedException {
        String id = UUID.randomUUID().toString();
        boolean told = false;
        do {
            int running;
            synchronized (tasks) {
                running = tasks.size();
            }
            try {
                keeper.once(Database.CALL, db -> Sql.one(db, """
                        SELECT fairq.register_worker(?::text::uuid, ?::text, ?::text::text[], host => ?::text,
                            client => 'java', version => ?::text, concurrency => ?::text::int,
                            running => ?::text::int)::text""" + keeper.briefly(), row -> row.getString(1),
                        id, worker.name, worker.queues, Worker.host(), Fairq.VERSION, worker.concurrency, running));
            } catch (SQLException problem) {
                if (!told && !Problem.isTransient(problem) && ending.getCount() > 0) {
                    log.warn("the worker is not in fairq.workers", "error", Problem.line(problem));
                    told = true;
                }
            }
        } while (sleep(ending, REGISTER));
        try {
            keeper.once(PARTING, db -> Sql.one(db, "SELECT fairq.unregister_worker(?::text::uuid)::text"
                    + keeper.briefly(), row -> row.getString(1), id));
        } catch (SQLException problem) {
            return; // the worker's row expires
        }
    }

    private void keepAlive() throws InterruptedException {
        do {
            try {
                Files.writeString(worker.alive, worker.name + "\n");
            } catch (IOException problem) {
                log.error("the file alive cannot be written", "error", Problem.line(problem));
                return;
            }
        } while (sleep(ending, Duration.ofSeconds(1)));
    }

    private void keepSchedules() throws InterruptedException {
        while (stopping.getCount() > 0) {
            Duration pause = REFUSED;
            try {
                Instant now = keeper.retrying(ending, Database.CALL, db -> Sql.one(db, "SELECT clock_timestamp()",
                        row -> row.getObject(1, OffsetDateTime.class).toInstant()));
                pause = LOOK;
                for (Schedule schedule : worker.schedules) {
                    Duration next = addDue(schedule, now);
                    pause = next.compareTo(pause) < 0 ? next : pause;
                }
            } catch (SQLException problem) {
                log.error("the schedules cannot read the server's clock", "error", Problem.line(problem));
            }
            sleep(stopping, pause);
        }
    }

    /** Adds the tasks of a schedule that are due, and returns the time until the next one. */
    private Duration addDue(Schedule schedule, Instant now) throws InterruptedException {
        try {
            for (Instant at : schedule.due(now)) {
                String queue = schedule.queue == null ? worker.queues.get(0) : schedule.queue;
                Object[] values = Fairq.values(queue, schedule.taskAt(at));
                keeper.retrying(ending, Database.CALL,
                        db -> Sql.id(db, Fairq.ENQUEUE + keeper.briefly(), values));
            }
            schedule.seen = now;
            Instant next = schedule.next(now);
            return next == null ? LOOK : Duration.between(now, next);
        } catch (SQLException | RuntimeException problem) {
            log.error("a task of a schedule cannot be added", "schedule", schedule.name,
                    "error", Problem.line(problem));
            return REFUSED;
        }
    }

    // ---- the end

    /** Waits for running tasks to end, and releases those that do not. */
    private void finish() {
        try {
            if (!idleWithin(worker.grace)) {
                List<Task> running;
                synchronized (tasks) {
                    running = List.copyOf(tasks);
                }
                running.forEach(task -> task.stop(Task.Stop.HANDED_BACK));
                if (!idleWithin(Duration.ofMillis(500))) {
                    synchronized (tasks) {
                        left = true;
                        running = List.copyOf(tasks);
                    }
                    running.forEach(task -> abandon(task, new CancellationException()));
                    idleWithin(Duration.ofSeconds(4));
                }
            }
            ending.countDown();
            for (Future<?> service : services) {
                service.get(3, TimeUnit.SECONDS);
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        } catch (java.util.concurrent.ExecutionException | TimeoutException problem) {
            log.warn("the worker does not wait any longer for its threads");
        } finally {
            ending.countDown();
            popper.close();
            keeper.close();
            timers.shutdownNow();
            threads.shutdown();
        }
    }

    private boolean idleWithin(Duration limit) throws InterruptedException {
        long end = System.nanoTime() + limit.toNanos();
        synchronized (tasks) {
            while (!tasks.isEmpty()) {
                long left = (end - System.nanoTime()) / 1_000_000;
                if (left <= 0) {
                    return false;
                }
                tasks.wait(left);
            }
            return true;
        }
    }

    /** Sleeps.  Returns false if the latch is released meanwhile. */
    private static boolean sleep(CountDownLatch until, Duration time) throws InterruptedException {
        return !until.await(time.toNanos(), TimeUnit.NANOSECONDS);
    }
}
