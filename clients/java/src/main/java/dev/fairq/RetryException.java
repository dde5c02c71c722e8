package dev.fairq;

import java.time.Duration;

/** A handler throws this for a retry after a time of its choice.  The attempt
 * counts.  */
public final class RetryException extends RuntimeException {
    private static final long serialVersionUID = 1;
    /** The time until the retry. */
    public final Duration in;

    public RetryException(String message, Duration in) {
        super(message);
        this.in = in;
    }

    public RetryException(String message, Duration in, Throwable cause) {
        super(message, cause);
        this.in = in;
    }
}
