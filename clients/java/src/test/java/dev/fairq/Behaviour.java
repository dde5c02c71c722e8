package dev.fairq;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParseException;
import com.google.gson.JsonParser;
import java.io.IOException;
import java.sql.Connection;
import java.sql.SQLException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.ResourceBundle;

/**
 * A worker and a producer for the tests that all clients share: see clients/README.md.
 *
 * <pre>
 * behaviour work QUEUE...
 * behaviour enqueue QUEUE GROUP ACTION [OPTIONS]
 * </pre>
 */
public final class Behaviour {
    private Behaviour() {
    }

    public static void main(String[] args) throws InterruptedException {
        try {
            if (args.length >= 2 && args[0].equals("work")) {
                work(List.of(args).subList(1, args.length).toArray(String[]::new));
            } else if (args.length >= 4 && args[0].equals("enqueue")) {
                enqueue(args);
            } else {
                throw new IllegalArgumentException("usage: behaviour work QUEUE... | enqueue QUEUE GROUP ACTION");
            }
        } catch (SQLException | RuntimeException problem) {
            System.err.println("behaviour: " + Problem.line(problem));
            System.exit(1);
        }
    }

    private static void enqueue(String[] args) throws SQLException {
        JsonObject options = args.length > 4 ? object(args[4]) : new JsonObject();
        NewTask task = NewTask.named("behaviour").group(args[2]).payload(object(args[3]).toString());
        if (options.has("delay")) {
            task.delay(seconds(options.get("delay").getAsDouble()));
        }
        if (options.has("priority")) {
            task.priority(options.get("priority").getAsInt());
        }
        if (options.has("headers")) {
            task.headers(options.get("headers").toString());
        }
        try (Connection db = Fairq.connect()) {
            db.setAutoCommit(false);
            long id = options.has("batch_of") ? batch(db, args[1], task, options)
                    : Fairq.enqueue(db, args[1], task);
            if (options.has("rollback") && options.get("rollback").getAsBoolean()) {
                db.rollback();
            } else {
                db.commit();
            }
            System.out.println(id);
        }
    }

    private static long batch(Connection db, String queue, NewTask task, JsonObject options) throws SQLException {
        long id = Fairq.createBatch(db, queue, task, false);
        List<NewTask> tasks = new ArrayList<>();
        for (JsonElement action : options.get("batch_of").getAsJsonArray()) {
            tasks.add(NewTask.named("behaviour").group(task.group).payload(action.toString()).batch(id));
        }
        Fairq.enqueueBatch(db, queue, tasks);
        Fairq.closeBatch(db, id);
        return id;
    }

    /** JsonParser is lenient: it takes a word for a string. */
    private static JsonObject object(String text) {
        JsonElement element = JsonParser.parseString(text);
        if (!element.isJsonObject()) {
            throw new JsonParseException("it is not a JSON object: " + text);
        }
        return element.getAsJsonObject();
    }

    private static void work(String[] queues) {
        Worker worker = new Worker().queues(queues).handle("behaviour", Behaviour::behave)
                .concurrency((int) setting("CONCURRENCY", 1)).lease(seconds(setting("LEASE", 60)))
                .grace(seconds(setting("GRACE", 5))).timeout(seconds(setting("TIMEOUT", 0)))
                .giveUp(seconds(setting("GIVE_UP", 60))).logger(new Stderr("info".equals(System.getenv("LOG"))));
        if (System.getenv("POLL") != null) {
            worker.poll(seconds(setting("POLL", 0)));
        }
        if (System.getenv("HOOKS") != null) {
            worker.hooks(new Saying());
        }
        if (System.getenv("SCHEDULE") != null) {
            String[] schedule = System.getenv("SCHEDULE").split(":");
            worker.schedule(Schedule.every(seconds(Double.parseDouble(schedule[1])),
                    NewTask.named("behaviour").payload("{\"do\": \"ok\"}")).name(schedule[0]));
        }
        worker.serve();
    }

    private static final class Saying implements Hooks {
        @Override
        public void before(Task task) {
            say("hook before %d %d", task.id(), task.attempt());
        }

        @Override
        public void after(Task task) {
            say("hook after %d %d", task.id(), task.attempt());
        }

        @Override
        public void error(Task task, Throwable error) {
            say("hook error %d %d", task.id(), task.attempt());
        }

        @Override
        public void lost(Task task) {
            say("hook lost %d %d", task.id(), task.attempt());
        }
    }

    /** A logger that writes lines to stderr. */
    private record Stderr(boolean verbose) implements System.Logger {
        @Override
        public String getName() {
            return "behaviour";
        }

        @Override
        public boolean isLoggable(Level level) {
            return level.getSeverity() >= (verbose ? Level.INFO : Level.WARNING).getSeverity();
        }

        @Override
        public void log(Level level, ResourceBundle bundle, String text, Throwable thrown) {
            if (isLoggable(level)) {
                System.err.println(level + ": " + text);
            }
        }

        @Override
        public void log(Level level, ResourceBundle bundle, String format, Object... values) {
            log(level, bundle, format, (Throwable) null);
        }
    }

    private static void behave(Task task) throws Exception {
        JsonObject action = object(task.payload());
        say("start %d %d %s %s", task.id(), task.attempt(), task.group(), task.queue());
        try {
            act(task, action);
        } catch (InterruptedException stopped) {
            say("cancelled %d %d", task.id(), task.attempt());
            throw stopped;
        }
        say("end %d %d", task.id(), task.attempt());
    }

    private static void act(Task task, JsonObject action) throws Exception {
        String message = text(action, "message");
        switch (action.get("do").getAsString()) {
            case "ok":
                return;
            case "sleep":
                sleep(action);
                return;
            case "raise":
                throw new IOException(message);
            case "raise_from":
                throw new IOException(message, new IOException(text(action, "cause")));
            case "raise_until":
                if (task.attempt() < action.get("attempt").getAsInt()) {
                    throw new IOException("attempt " + task.attempt());
                }
                return;
            case "dead":
                throw new DeadException(message);
            case "retry":
                if (task.attempt() == 1) {
                    throw new RetryException("to be retried", seconds(action.get("seconds").getAsDouble()));
                }
                return;
            case "exit", "exit_always":
                if (task.attempt() == 1 || text(action, "do").equals("exit_always")) {
                    kill();
                }
                return;
            case "progress":
                task.progress(action.get("value").toString());
                Thread.sleep(500);
                return;
            case "steps":
                steps(task, text(action, "how"));
                return;
            case "cursor":
                cursor(task, text(action, "how"));
                return;
            case "batch":
                say("batch %d %d", task.id(), task.batch());
                return;
            case "headers":
                say("headers %d %s", task.id(), task.headers());
                return;
            default:
                throw new IllegalArgumentException("unknown action " + action);
        }
    }

    private static void sleep(JsonObject action) throws InterruptedException {
        long end = System.nanoTime() + seconds(action.get("seconds").getAsDouble()).toNanos();
        boolean deaf = action.has("deaf") && action.get("deaf").getAsBoolean();
        for (long left = end - System.nanoTime(); left > 0; left = end - System.nanoTime()) {
            try {
                Thread.sleep(left / 1_000_000, (int) (left % 1_000_000));
            } catch (InterruptedException asked) {
                if (!deaf) {
                    throw asked;
                }
            }
        }
    }

    private static void steps(Task task, String how) throws Exception {
        String first = task.step("first", () -> {
            say("step %d %d first", task.id(), task.attempt());
            return "{\"attempt\": " + task.attempt() + "}";
        });
        task.step("second", () -> {
            say("step %d %d second", task.id(), task.attempt());
            breakFirst(task, how);
            return object(first).get("attempt").toString();
        });
    }

    private static void cursor(Task task, String how) throws Exception {
        for (int n = task.cursor().map(Integer::parseInt).orElse(0) + 1; n <= 20; n++) {
            say("at %d %d %d", task.id(), task.attempt(), n);
            if (n == 10) {
                breakFirst(task, how);
            }
            Thread.sleep(100);
            task.checkpoint("" + n);
        }
    }

    private static void breakFirst(Task task, String how) throws IOException, InterruptedException {
        if (task.attempt() == 1) {
            if (how.equals("exit")) {
                kill();
            }
            throw new IOException("attempt 1");
        }
    }

    private static void kill() throws IOException, InterruptedException {
        new ProcessBuilder("kill", "-9", "" + ProcessHandle.current().pid()).start().waitFor();
    }

    private static void say(String format, Object... values) {
        System.out.println(String.format(format, values));
    }

    private static String text(JsonObject action, String name) {
        return action.has(name) ? action.get(name).getAsString() : "";
    }

    private static Duration seconds(double seconds) {
        return Duration.ofNanos((long) (seconds * 1e9));
    }

    private static double setting(String name, double otherwise) {
        String text = System.getenv(name);
        return text == null ? otherwise : Double.parseDouble(text);
    }
}
