package dev.fairq;

/** A handler throws this if no retry can help. The task then fails for good.
 * */
public final class DeadException extends RuntimeException {
    private static final long serialVersionUID = 1;

    public DeadException(String message) {
        super(message);
    }

    public DeadException(String message, Throwable cause) {
        super(message, cause);
    }
}
