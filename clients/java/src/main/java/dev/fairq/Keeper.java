package dev.fairq;

import java.sql.SQLException;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;

/**
 * Calls functions of fairq for a task, on a worker's connection or in a test's
 * transaction.
 */
interface Keeper {
    <T> T retrying(CountDownLatch ending, Duration limit, Database.Use<T> use)
            throws SQLException, InterruptedException;

    String briefly();
}
