package dev.fairq;

import java.sql.SQLException;
import org.postgresql.util.PSQLException;
import org.postgresql.util.ServerErrorMessage;

/** Classifies errors for the worker, and describes them for the log and the archive. */
final class Problem {
    private static final int MOST_CAUSES = 10;
    private static final int MOST_FRAMES = 30;

    private Problem() {
    }

    static String state(Throwable error) {
        String state = error instanceof SQLException ? ((SQLException) error).getSQLState() : null;
        return state == null ? "" : state;
    }

    /** Whether time or a new connection may fix the error: the server is down, busy, or read-only. */
    static boolean isTransient(SQLException error) {
        return !state(error).matches("(QF|0A|22|23|28|3D|3F|42|54).*|08004");
    }

    /** Whether the server refuses the connection.  The refusal may be temporary. */
    static boolean isRefusal(SQLException error) {
        return state(error).matches("(28|3D).*|08004");
    }

    /** Whether data exceeds a limit or the memory of the server, for example a payload that the server cannot print. */
    static boolean isTooLarge(SQLException error) {
        return state(error).matches("54.*|53200");
    }

    /** Whether a connection is unusable after the error. */
    static boolean isLost(SQLException error) {
        return state(error).matches("|25006|(08|57P).*");
    }

    /**
     * Whether another transaction has a lock that the statement needs, or the
     * statement was cancelled.
     */
    static boolean isHeld(SQLException error) {
        return state(error).matches("55P03|57014");
    }

    /** The error of the server in one sentence. */
    static SQLException explain(SQLException error) {
        ServerErrorMessage server = error instanceof PSQLException
                ? ((PSQLException) error).getServerErrorMessage() : null;
        String text = error.getMessage();
        if (server != null) {
            text = server.getMessage() + (server.getHint() == null ? "" : " (" + server.getHint() + ")");
        }
        if (state(error).matches("3F000|42883")) {
            text = "the database has no extension fairq, or another version of it: " + text;
        }
        return new SQLException(text, error.getSQLState(), error);
    }

    /** One line for the log. */
    static String line(Throwable error) {
        String text = error instanceof PSQLException ? explain((SQLException) error).getMessage()
                : error instanceof SQLException ? error.getMessage() : describe(error);
        return text.replaceAll("\\s*\\n\\s*", " ");
    }

    /** The error with its causes. */
    private static String describe(Throwable error) {
        StringBuilder text = new StringBuilder();
        Throwable each = error;
        for (int i = 0; each != null && i < MOST_CAUSES; i++) {
            text.append(i == 0 ? "" : "; caused by ").append(say(each));
            each = each.getCause();
        }
        return text.toString();
    }

    private static String say(Throwable error) {
        try {
            return String.valueOf(error);
        } catch (RuntimeException | StackOverflowError problem) {
            return error.getClass().getName(); // its own methods throw
        }
    }

    /** The error with its causes, and those of their frames that belong to the handler. */
    static String archived(Throwable error) {
        StringBuilder text = new StringBuilder(describe(error));
        Throwable each = error;
        for (int i = 0; each != null && i < MOST_CAUSES; i++) {
            text.append('\n').append(say(each));
            int frames = 0;
            for (StackTraceElement frame : each.getStackTrace()) {
                if (frame.getClassName().startsWith("dev.fairq.Run") || frames++ == MOST_FRAMES) {
                    break;
                }
                text.append("\n\tat ").append(frame);
            }
            each = each.getCause();
        }
        return text.toString().replace("\0", "");
    }
}
