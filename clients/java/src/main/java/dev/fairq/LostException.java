package dev.fairq;

/** The task was cancelled, or its lease is lost.  Further work is wasted. */
public final class LostException extends RuntimeException {
    private static final long serialVersionUID = 1;

    public LostException() {
        super("the task was cancelled, or its lease is lost");
    }
}
