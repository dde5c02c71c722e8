package dev.fairq;

import java.util.concurrent.CountDownLatch;
import java.util.function.BooleanSupplier;

/**
 * The gate that all workers of the process share.  Tasks run together, except for a task that
 * may kill the process, which runs alone.
 */
final class Gate {
    static final Gate PROCESS = new Gate();

    private int sharing; // tasks, and workers that are about to take tasks
    private int waiting; // tasks that wait to run alone
    private boolean alone;

    /** Waits while another task runs alone or is waiting for that; false: the
	 * worker stops. */
    synchronized boolean share(CountDownLatch stopping) {
        return await(stopping, () -> !alone && waiting == 0, () -> sharing++);
    }

    /** Shares the process once more, for a caller that already shares it. */
    synchronized void join() {
        sharing++;
    }

    synchronized void leave() {
        sharing--;
        notifyAll();
    }

    /**
     * Waits until no other task runs in the process.  Returns the function to
     * call at the end of the task.  If the worker stops during the wait, the
     * task must not begin.
     */
    synchronized Runnable exclude(CountDownLatch stopping) {
        waiting++;
        boolean entered = await(stopping, () -> !alone && sharing == 0, () -> alone = true);
        waiting--;
        notifyAll();
        return () -> {
            synchronized (this) {
                alone &= !entered;
                notifyAll();
            }
        };
    }

    private boolean await(CountDownLatch stopping, BooleanSupplier ready, Runnable enter) {
        while (stopping.getCount() > 0) {
            if (ready.getAsBoolean()) {
                enter.run();
                return true;
            }
            try {
                wait(100);
            } catch (InterruptedException interrupted) {
                stopping.countDown();
            }
        }
        return false;
    }
}
