package dev.fairq;

/**
 * The worker calls these around each attempt: before, then one of the others.  If one
 * throws, the worker logs the exception and continues.
 */
public interface Hooks {
    /** Called in the handler's thread, before the handler runs. */
    default void before(Task task) {
    }

    /** The handler has returned. */
    default void after(Task task) {
    }

    /** The handler has thrown, or ignores its timeout; or there is no handler. */
    default void error(Task task, Throwable error) {
    }

    /** The attempt has no effect: the task was cancelled, its lease is lost, or the worker stops. */
    default void lost(Task task) {
    }
}
