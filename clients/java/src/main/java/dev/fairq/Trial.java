package dev.fairq;

import java.sql.Connection;
import java.sql.SQLException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;

/** Runs tasks in a test's transaction. */
final class Trial implements Keeper {
    private static final int MOST = 1000; // a limit, since handlers may enqueue tasks without end

    private final Worker worker;
    private final Connection db;

    Trial(Worker worker, Connection db) {
        this.worker = worker;
        this.db = db;
    }

    @Override
    public <T> T retrying(CountDownLatch ending, Duration limit, Database.Use<T> use) throws SQLException {
        return use.with(db);
    }

    @Override
    public String briefly() {
        return "";
    }

    List<Worker.Ran> run() throws Exception {
        List<Worker.Ran> all = new ArrayList<>();
        while (true) {
            List<Task> tasks = Run.claim(db, worker, 1, Task.TEXTS, row -> {
                Task task = new Task(row, this, worker.json, Duration.ZERO);
                task.readTexts(row, 10);
                return task;
            });
            if (tasks.isEmpty()) {
                return all;
            }
            if (all.size() == MOST) {
                throw new IllegalStateException("fairq: the limit of " + MOST
                        + " tasks is reached, and another one is ready: " + tasks);
            }
            all.add(run(tasks.get(0)));
        }
    }

    private Worker.Ran run(Task task) throws Exception {
        try {
            Run.handler(worker, task).run(task);
        } catch (DeadException | RetryException intended) {
            task.saveRest(task.stopped);
            Sql.is(db, Run.FAIL, Run.failValues(task, intended, task.took()));
            return new Worker.Ran(task, intended);
        }
        Sql.is(db, Task.COMPLETE, task.id, task.attempt, task.result, task.took());
        return new Worker.Ran(task, null);
    }
}
