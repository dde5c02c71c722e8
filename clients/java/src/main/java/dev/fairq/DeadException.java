package dev.fairq;

/** A handler throws it if no retry can help: the task fails for good. */
public final class DeadException extends RuntimeException {
    private static final long serialVersionUID = 1;

    public DeadException(String message) {
        super(message);
    }

    public DeadException(String message, Throwable cause) {
        super(message, cause);
    }
}
