package dev.fairq;

/**
 * Runs a task.  If it throws, the attempt fails, and the task is retried with the queue's
 * backoff, unless it throws a {@link DeadException} or a {@link RetryException}.
 *
 * <p>The worker interrupts the handler's thread if the task was cancelled, or its lease is lost.
 * It does the same when the task's time or the worker's grace is over.
 */
@FunctionalInterface
public interface Handler {
    void run(Task task) throws Exception;

    /** A handler that gets the payload as the worker's JSON library has decoded it. */
    @FunctionalInterface
    interface Typed<T> {
        void run(Task task, T payload) throws Exception;
    }
}
