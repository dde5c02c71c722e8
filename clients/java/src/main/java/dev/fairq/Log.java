package dev.fairq;

import java.lang.System.Logger;
import java.lang.System.Logger.Level;

/** Lines with keys and values. */
final class Log {
    private final Logger logger;

    Log(Logger logger) {
        this.logger = logger;
    }

    void info(String line, Object... pairs) {
        log(Level.INFO, line, pairs);
    }

    void warn(String line, Object... pairs) {
        log(Level.WARNING, line, pairs);
    }

    void error(String line, Object... pairs) {
        log(Level.ERROR, line, pairs);
    }

    private void log(Level level, String line, Object... pairs) {
        StringBuilder text = new StringBuilder(line);
        for (int i = 0; i + 1 < pairs.length; i += 2) {
            String value = String.valueOf(pairs[i + 1]).replaceAll("\\s*\\n\\s*", " ");
            text.append(' ').append(pairs[i]).append('=');
            text.append(value.isEmpty() || value.contains(" ") ? Text.quote(value) : value);
        }
        logger.log(level, text.toString());
    }

    /** Logs a line about a task. */
    void about(Level level, Task task, String line, Object... pairs) {
        Object[] all = new Object[10 + pairs.length];
        System.arraycopy(new Object[] {"id", task.id, "task", task.name, "queue", task.queue, "group", task.group,
            "attempt", task.attempt}, 0, all, 0, 10);
        System.arraycopy(pairs, 0, all, 10, pairs.length);
        log(level, line, all);
    }
}
