package dev.fairq;

import java.time.Duration;
import java.time.Instant;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.List;

/**
 * Adds a task at each of its times.  All workers with this schedule together add one task
 * for each time.
 */
public final class Schedule {
    /** How long a time's key stays taken in addition to catchUp. */
    private static final Duration KEY_MARGIN = Duration.ofMinutes(5);

    /** Returns the first time after the given one; null: there is none. */
    @FunctionalInterface
    public interface Times {
        ZonedDateTime next(ZonedDateTime after);
    }

    private final NewTask task;
    private final Times times;
    private ZoneId zone = ZoneOffset.UTC;
    private Duration catchUp = Duration.ofHours(1);
    String name;
    String queue;
    Instant seen = Instant.MIN; // the times up to this one have their tasks

    private Schedule(NewTask task, Times times) {
        this.task = task;
        this.times = times;
        this.name = task.name;
        List<String> set = task.fieldsOfEnqueue();
        NewTask.add(set, task.dedupKey != null, "dedupKey");
        NewTask.add(set, task.runAt != null, "runAt");
        NewTask.add(set, task.batch != null, "batch");
        NewTask.add(set, !task.after.isEmpty(), "after");
        NewTask.refuse(set, "in a schedule");
    }

    /**
     * Returns a schedule whose times are the multiples of an interval since
     * 1970 in UTC.  The interval is at least a second.
     */
    public static Schedule every(Duration interval, NewTask task) {
        if (interval.compareTo(Duration.ofSeconds(1)) < 0) {
            throw new IllegalArgumentException("fairq: a schedule has an interval of less than a second");
        }
        long millis = interval.toMillis();
        return new Schedule(task, after -> Instant.ofEpochMilli(
                (Math.floorDiv(after.toInstant().toEpochMilli(), millis) + 1) * millis).atZone(ZoneOffset.UTC));
    }

    /**
     * Returns a schedule with these times in this zone.  A library for cron
     * lines can compute the times.
     */
    public static Schedule at(Times times, ZoneId zone, NewTask task) {
        Schedule schedule = new Schedule(task, times);
        schedule.zone = zone;
        return schedule;
    }

    /** The name, the same in all workers with this schedule; by default the
     * task's name. */
    public Schedule name(String name) {
        this.name = name;
        return this;
    }

    /** The queue of the tasks; by default the worker's first one. */
    public Schedule queue(String queue) {
        this.queue = queue;
        return this;
    }

    /** How old a missed time may be when a worker starts; an hour by default. */
    public Schedule catchUp(Duration time) {
        this.catchUp = time;
        return this;
    }

    /** The task for a time. */
    NewTask taskAt(Instant at) {
        String text = DateTimeFormatter.ofPattern(at.getNano() < 1000 ? "yyyy-MM-dd'T'HH:mm:ss'Z'"
                : "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'+00:00'").withZone(ZoneOffset.UTC).format(at);
        NewTask one = task.copy().header("schedule", name).header("scheduled_at", text)
                .dedupKey("schedule " + name + " " + text).dedupFor(catchUp.plus(KEY_MARGIN));
        return one.group == null && !one.emptyGroup ? one.group("schedule") : one;
    }

    /**
     * The times until now whose tasks have not been added.  The first call
     * returns only the last one.
     */
    List<Instant> due(Instant now) {
        Instant from = now.minus(catchUp);
        boolean first = seen.equals(Instant.MIN);
        List<Instant> due = new ArrayList<>();
        for (Instant at = next(seen.isAfter(from) ? seen : from); at != null && !at.isAfter(now); at = next(at)) {
            if (first) {
                due.clear();
            }
            due.add(at);
        }
        return due;
    }

    Instant next(Instant after) {
        ZonedDateTime next = times.next(after.atZone(zone));
        return next == null || !next.toInstant().isAfter(after) ? null : next.toInstant();
    }
}
