package dev.fairq;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import org.postgresql.PGConnection;

/**
 * A connection that several threads share.  It reconnects after a loss.  A thread of its own runs
 * the statements, so an interrupted handler does not break the connection.
 */
final class Database implements Keeper {
    /** The time between two tries to reach a database that is down. */
    static final Duration RETRY = Duration.ofSeconds(1);
    /** The time between two tries to end a task whose row another transaction has locked. */
    private static final Duration HELD = Duration.ofMillis(500);
    /** A call that takes longer fails, and its connection is closed, since the server has
     * vanished.  */
    static final Duration CALL = Duration.ofSeconds(15);

    private final Address address;
    private final Log log;
    private final ExecutorService thread;
    /** Callers that wait for a lock retry one at a time, so that others can use the connection. */
    private final ReentrantLock holding = new ReentrantLock();
    private volatile Connection connection;
    private volatile Statement waiting;
    private volatile boolean closed;
    private volatile long heldAt = System.nanoTime() - Duration.ofDays(1).toNanos();
    volatile boolean pooled; // the server is behind a pooler: known once there is a connection

    /** Uses a connection. */
    interface Use<T> {
        T with(Connection db) throws SQLException;
    }

    Database(Address address, Log log, String name) {
        this.address = address;
        this.log = log;
        this.thread = Executors.newSingleThreadExecutor(Run.daemons(name));
    }

    /** Uses the connection once. */
    <T> T once(Duration limit, Use<T> use) throws SQLException, InterruptedException {
        Future<T> answer = thread.submit(() -> tryOnce(limit, use));
        try {
            return answer.get();
        } catch (ExecutionException failure) {
            Throwable cause = failure.getCause();
            if (cause instanceof SQLException) {
                throw (SQLException) cause;
            }
            throw new IllegalStateException(cause);
        }
    }

    private <T> T tryOnce(Duration limit, Use<T> use) throws SQLException {
        if (closed) {
            throw new SQLException("the worker has ended", "42000");
        }
        try {
            if (connection == null) {
                connection = address.connect();
                // a pooler sends its clients an invented process ID
                pooled = Sql.id(connection, "SELECT pg_backend_pid()")
                        != connection.unwrap(PGConnection.class).getBackendPID();
            }
            connection.setNetworkTimeout(Runnable::run, (int) limit.toMillis());
            return use.with(connection);
        } catch (SQLException problem) {
            if (Problem.isLost(problem)) {
                disconnect();
            }
            throw problem;
        } catch (RuntimeException | Error problem) {
            disconnect();
            throw problem;
        }
    }

    /**
     * Uses the connection until the call succeeds, no retry can help, or the
     * latch is released.  If only an answer was lost, the call runs twice.
     * That is harmless, since calls name the attempt.
     */
    @Override
    public <T> T retrying(CountDownLatch ending, Duration limit, Use<T> use)
            throws SQLException, InterruptedException {
        boolean mine = false;
        try {
            while (true) {
                try {
                    return once(limit, use);
                } catch (SQLException problem) {
                    boolean held = Problem.isHeld(problem);
                    if (ending.getCount() == 0 || !Problem.isTransient(problem) && !Problem.isRefusal(problem)) {
                        throw problem;
                    }
                    noteProblem(held, problem);
                    ending.await((held ? HELD : RETRY).toMillis(), TimeUnit.MILLISECONDS);
                    if (held && mine) {
                        holding.unlock();
                        mine = false;
                        Thread.sleep(HELD.toMillis() / 10); // so that another caller can retry
                    }
                    if (held) {
                        holding.lockInterruptibly();
                        mine = true; // after a success the next caller retries
                    }
                }
            }
        } finally {
            if (mine) {
                holding.unlock();
            }
        }
    }

    private void noteProblem(boolean held, SQLException problem) {
        if (!held) {
            log.warn("retrying", "error", Problem.line(problem));
            return;
        }
        if (!heldLately()) {
            log.warn("another transaction has locked the task; retrying", "error", Problem.line(problem));
        }
        heldAt = System.nanoTime();
    }

    private boolean heldLately() {
        return System.nanoTime() - heldAt < 4 * HELD.toNanos();
    }

    /**
     * Returns an end for a statement about a task, a SELECT without FROM.  With this end
     * the statement waits for a lock only briefly, since other tasks need this connection
     * too.
     */
    @Override
    public String briefly() {
        return " FROM set_config('lock_timeout', '" + (heldLately() ? 10 : 100) + "ms', true)";
    }

    /** Sleeps in fairq.wait until there may be tasks, or interrupt() is called after the latch is released. */
    void await(Object queues, Duration timeout, CountDownLatch stopping) throws SQLException, InterruptedException {
        try {
            once(timeout.plusSeconds(10), db -> {
                try (PreparedStatement call = db.prepareStatement(
                        "CALL fairq.wait(?::text::text[], ?::text::interval)")) {
                    Sql.bind(call, queues, timeout);
                    waiting = call;
                    // interrupt() may have read "waiting" before this
                    return stopping.getCount() > 0 && call.execute();
                } finally {
                    waiting = null;
                }
            });
        } catch (SQLException problem) {
            if (!Problem.isHeld(problem)) {
                throw problem;
            } // otherwise the call was cancelled
        }
    }

    /** Ends fairq.wait, and finally the connection, since the server may not answer. */
    void interrupt() {
        for (int i = 0; i < 10; i++) {
            Statement statement = waiting;
            if (statement == null) {
                return;
            }
            try {
                statement.cancel();
                Thread.sleep(100);
            } catch (SQLException | InterruptedException problem) {
                break;
            }
        }
        Connection hangs = connection;
        if (hangs != null && waiting != null) {
            try {
                hangs.abort(Runnable::run);
            } catch (SQLException problem) {
                log.warn("a connection cannot be closed", "error", Problem.line(problem));
            }
        }
    }

    private void disconnect() {
        Connection old = connection;
        connection = null;
        if (old != null) {
            try {
                old.close();
            } catch (SQLException problem) {
                return; // the connection is lost in any case
            }
        }
    }

    /** Ends the connection for good. */
    void close() {
        closed = true;
        thread.submit(this::disconnect);
        thread.shutdown();
        try {
            thread.awaitTermination(1, TimeUnit.SECONDS);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
