package dev.fairq;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.SQLException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import sun.misc.Signal;

/**
 * Runs the tasks of one or several queues.  It has two connections of its own, so it renews leases
 * even while the handlers are busy.  Each setter returns the worker.
 */
public final class Worker {
    String url;
    final Properties properties = new Properties();
    List<String> queues = List.of();
    final Map<String, Handler> handlers = new HashMap<>();
    Handler others;
    int concurrency = 4;
    Duration lease = Duration.ofMinutes(1);
    Duration timeout = Duration.ZERO;
    final Map<String, Duration> timeouts = new HashMap<>();
    Duration grace = Duration.ofSeconds(5);
    Duration giveUp = Duration.ofMinutes(1);
    Duration poll;
    String name = host() + ":" + ProcessHandle.current().pid();
    Json json;
    Hooks hooks = new Hooks() { };
    final List<Schedule> schedules = new ArrayList<>();
    Path alive;
    Log log = new Log(System.getLogger("dev.fairq"));

    private final CountDownLatch stopping = new CountDownLatch(1);
    private final CountDownLatch ended = new CountDownLatch(1);
    private volatile boolean started;
    private volatile Run run; // null: the worker has not started

    /** A task that {@link #runTasks} has run, and the handler's DeadException or RetryException. */
    public record Ran(Task task, RuntimeException error) {
    }

    /** The present state of a worker. */
    public record Status(String name, List<String> queues, int concurrency, boolean stopping,
            List<Running> tasks) {
        /** The number of tasks that the worker has taken and not ended. */
        public int running() {
            return tasks.size();
        }
    }

    /** A task that a worker has taken, and how long it has run. */
    public record Running(long id, int attempt, String queue, String group, String name, Duration time) {
    }

    /** The database, as jdbc:postgresql://HOST/DATABASE.  By default PGHOST and so on name it. */
    public Worker url(String url) {
        this.url = url;
        return this;
    }

    /** A property of the driver, such as user and password. */
    public Worker property(String name, String value) {
        properties.setProperty(name, value);
        return this;
    }

    /** Sets the queues.  While the first queue has a task that can run, the others wait. */
    public Worker queues(String... names) {
        this.queues = List.of(names);
        return this;
    }

    /** Sets the handler of the tasks with this name. */
    public Worker handle(String name, Handler handler) {
        handlers.put(name, handler);
        return this;
    }

    /** Does the same with a decoded payload, for which the worker needs {@link #json}. */
    public <T> Worker handle(String name, Class<T> type, Handler.Typed<T> handler) {
        return handle(name, task -> handler.run(task, task.payload(type)));
    }

    /** Sets the handler of tasks without a name, and of those whose name has no
     * handler. */
    public Worker handleOthers(Handler handler) {
        this.others = handler;
        return this;
    }

    /** The number of tasks at a time; 4 by default. */
    public Worker concurrency(int tasks) {
        this.concurrency = tasks;
        return this;
    }

    /**
     * The time after which other workers may run the tasks of a dead worker; a minute by
     * default.
     */
    public Worker lease(Duration time) {
        this.lease = time;
        return this;
    }

    /** The time limit of a task.  After that time the task fails with "timed
     * out"; zero: no limit. */
    public Worker timeout(Duration time) {
        this.timeout = time;
        return this;
    }

    /** The time limit of the tasks with this name. */
    public Worker timeout(String name, Duration time) {
        timeouts.put(name, time);
        return this;
    }

    /** How long running tasks may continue when the worker stops; 5 seconds by default. */
    public Worker grace(Duration time) {
        this.grace = time;
        return this;
    }

    /**
     * How long the worker retries if the server refuses its connections; a minute by default.  It
     * waits for the same time while handlers that ignore their timeout keep all slots.
     */
    public Worker giveUp(Duration time) {
        this.giveUp = time;
        return this;
    }

    /**
     * The time between polls while there are no tasks.  By default the worker sleeps in fairq.wait,
     * and polls every second through a pooler.  Zero: it sleeps in fairq.wait, also through a pooler.
     */
    public Worker poll(Duration time) {
        this.poll = time;
        return this;
    }

    /** The worker's name in fairq.tasks; by default the host and the process id. */
    public Worker name(String name) {
        this.name = name;
        return this;
    }

    /** The library that decodes and encodes payloads and results. */
    public Worker json(Json library) {
        this.json = library;
        return this;
    }

    /** The methods that the worker calls around each attempt. */
    public Worker hooks(Hooks hooks) {
        this.hooks = hooks;
        return this;
    }

    /** Adds tasks at regular times. */
    public Worker schedule(Schedule schedule) {
        schedules.add(schedule);
        return this;
    }

    /** A file that the worker writes every second, for a probe that looks at the file's age. */
    public Worker alive(Path file) {
        this.alive = file;
        return this;
    }

    /** The logger; by default the system's logger dev.fairq. */
    public Worker logger(System.Logger logger) {
        this.log = new Log(logger);
        return this;
    }

    /**
     * Runs tasks until {@link #stop()} or an interrupt of this thread.  The
     * worker then takes no more tasks, and waits for running ones for at most
     * the grace period.  It releases tasks that do not end within that time,
     * and their attempts do not count.  A worker runs once.
     *
     * <p>The method throws at once if a queue, the extension or a privilege is missing.  It
     * throws after giveUp if the server refuses its connections.
     */
    public void run() throws SQLException {
        started = true;
        try {
            run = new Run(this, stopping);
            run.run();
        } finally {
            ended.countDown();
        }
    }

    /** Runs the worker in a thread of its own, for example in a web server. */
    public void start() {
        started = true;
        Thread thread = new Thread(() -> {
            try {
                run();
            } catch (SQLException | RuntimeException problem) {
                log.error("the worker has ended", "error", Problem.line(problem));
            }
        }, "fairq " + name);
        thread.setDaemon(true);
        thread.start();
    }

    /** Stops the worker, and returns after it has ended. */
    public void stop() throws InterruptedException {
        stopping.countDown();
        if (started) {
            ended.await();
        }
    }

    /** The present state of the worker.  Any thread may call it. */
    public Status status() {
        Run now = run;
        return new Status(name, queues, concurrency, stopping.getCount() == 0,
                now == null ? List.of() : now.running());
    }

    /**
     * For main(): runs until SIGTERM or SIGINT.  If the worker cannot work, it writes a line to
     * stderr and ends the process with status 1.
     */
    public void serve() {
        for (String signal : List.of("TERM", "INT")) {
            Signal.handle(new Signal(signal), received -> stopping.countDown());
        }
        try {
            run();
        } catch (SQLException | RuntimeException problem) {
            System.err.println("fairq: the worker has ended: " + Problem.line(problem));
            System.exit(1);
        }
    }

    /**
     * For tests: runs the ready tasks that the transaction sees, and those that their
     * handlers enqueue, one by one in this transaction.  A rollback removes the tasks that
     * the transaction has enqueued.  The method throws what a handler throws, except a
     * DeadException and a RetryException.
     */
    public List<Ran> runTasks(Connection db) throws Exception {
        return new Trial(this, db).run();
    }

    static String host() {
        try {
            return InetAddress.getLocalHost().getHostName();
        } catch (UnknownHostException problem) {
            return "localhost";
        }
    }
}
