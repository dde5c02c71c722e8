package dev.fairq;

import java.time.Duration;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * A task to be enqueued.  Everything that is not set has fairq's default.  Each method changes the task
 * and returns it.
 */
public final class NewTask {
    final String name;
    String group;
    boolean emptyGroup;
    String payload = "{}";
    int priority;
    Instant runAt;
    Duration delay;
    String dedupKey;
    Integer maxAttempts;
    Float cost;
    String headers;
    Map<String, String> named = new LinkedHashMap<>();
    Instant expiresAt;
    boolean replace;
    String dedupUntil;
    Duration dedupFor;
    Long batch;
    List<Long> after = List.of();
    boolean afterAny;

    private NewTask(String name) {
        this.name = name;
    }

    /** A task for the handler of this name: the header "task". */
    public static NewTask named(String name) {
        return new NewTask(name);
    }

    /** A task without a name, for a worker that has one handler for the whole queue. */
    public static NewTask unnamed() {
        return new NewTask(null);
    }

    /** The unit of fairness, such as a tenant or user. */
    public NewTask group(String group) {
        this.group = group;
        return this;
    }

    /**
     * The task belongs to the empty group.  Enqueue refuses a task with neither this nor a
     * group.
     */
    public NewTask emptyGroup() {
        this.emptyGroup = true;
        return this;
    }

    /** The arguments, as JSON text; {} by default. */
    public NewTask payload(String json) {
        this.payload = json;
        return this;
    }

    /** The arguments, which the library encodes. */
    public NewTask payload(Object value, Json json) {
        return payload(Json.encode(json, value, "the arguments of task " + name));
    }

    /** From 0, which runs first, to 9; 0 by default. */
    public NewTask priority(int priority) {
        this.priority = priority;
        return this;
    }

    /** The task does not run before this time. */
    public NewTask runAt(Instant at) {
        this.runAt = at;
        return this;
    }

    /** Does the same with a time that has an offset from UTC. */
    public NewTask runAt(OffsetDateTime at) {
        return runAt(at.toInstant());
    }

    /** The task does not run before this time has passed on the server's clock. */
    public NewTask delay(Duration delay) {
        this.delay = delay;
        return this;
    }

    /** At most one unfinished task of the queue has this key. */
    public NewTask dedupKey(String key) {
        this.dedupKey = key;
        return this;
    }

    /** The number of attempts, instead of the queue's max_attempts. */
    public NewTask maxAttempts(int attempts) {
        this.maxAttempts = attempts;
        return this;
    }

    /** The cost of the task, for cost-fair queues; 1 by default. */
    public NewTask cost(float cost) {
        this.cost = cost;
        return this;
    }

    /** An additional header, such as "traceparent". */
    public NewTask header(String key, String value) {
        named.put(key, value);
        return this;
    }

    /** Headers as the text of a JSON object. */
    public NewTask headers(String json) {
        this.headers = json;
        return this;
    }

    /** The task expires if it has not started by this time. */
    public NewTask expiresAt(Instant at) {
        this.expiresAt = at;
        return this;
    }

    /** An unfinished task with the dedupKey gets this task's values. */
    public NewTask replace() {
        this.replace = true;
        return this;
    }

    /** The key is taken until the task is "finished" or "started". */
    public NewTask dedupUntil(String event) {
        this.dedupUntil = event;
        return this;
    }

    /** The key stays taken for this time after {@link #dedupUntil}'s event. */
    public NewTask dedupFor(Duration time) {
        this.dedupFor = time;
        return this;
    }

    /** The id of the batch to which the task is added. */
    public NewTask batch(long id) {
        this.batch = id;
        return this;
    }

    /** The task waits until the tasks with these ids have succeeded. */
    public NewTask after(Long... ids) {
        this.after = List.of(ids);
        return this;
    }

    /** The task waits only until the tasks of {@link #after} have ended. */
    public NewTask afterAny() {
        this.afterAny = true;
        return this;
    }

    NewTask copy() {
        NewTask task = new NewTask(name);
        task.group = group;
        task.emptyGroup = emptyGroup;
        task.payload = payload;
        task.priority = priority;
        task.delay = delay;
        task.maxAttempts = maxAttempts;
        task.cost = cost;
        task.headers = headers;
        task.named = new LinkedHashMap<>(named);
        task.expiresAt = expiresAt;
        return task;
    }

    /** Throws an exception unless the task can be enqueued. */
    void check() {
        boolean empty = group == null || group.isEmpty();
        if (empty && !emptyGroup) {
            throw new IllegalArgumentException("fairq: task " + name + " has no group: set its group,"
                    + " or emptyGroup() for the empty group");
        }
        if (!empty && emptyGroup) {
            throw new IllegalArgumentException("fairq: task " + name + " has both a group and emptyGroup()");
        }
        if (runAt != null && delay != null) {
            throw new IllegalArgumentException("fairq: task " + name + " has both runAt and delay");
        }
    }

    String groupKey() {
        return group == null ? "" : group;
    }

    /** The JSON object of all headers; null: none. */
    String allHeaders() {
        Map<String, String> all = new LinkedHashMap<>();
        named.forEach((key, value) -> all.put(key, Text.quote(value)));
        if (name != null) {
            all.put("task", Text.quote(name));
        }
        if (all.isEmpty()) {
            return headers;
        }
        return Text.merge(headers, Text.object(all), "the headers of a task");
    }

    /** The fields that only enqueue accepts, if they are set. */
    List<String> fieldsOfEnqueue() {
        List<String> set = new ArrayList<>();
        add(set, replace, "replace");
        add(set, dedupUntil != null, "dedupUntil");
        add(set, dedupFor != null, "dedupFor");
        return set;
    }

    static void add(List<String> names, boolean isSet, String name) {
        if (isSet) {
            names.add(name);
        }
    }

    static void refuse(List<String> names, String where) {
        if (!names.isEmpty()) {
            throw new IllegalArgumentException("fairq: " + names.get(0) + " cannot be set " + where);
        }
    }
}
