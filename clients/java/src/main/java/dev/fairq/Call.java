package dev.fairq;

import java.sql.Connection;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** A call of a function with those arguments that have values. */
final class Call {
    /** The SQL types of a queue's settings. */
    static final Map<String, String> SETTINGS = Map.ofEntries(
            Map.entry("concurrency", "int"), Map.entry("max_running", "int"), Map.entry("lease", "interval"),
            Map.entry("max_attempts", "int"), Map.entry("backoff", "interval"),
            Map.entry("backoff_max", "interval"), Map.entry("retain", "interval"),
            Map.entry("retain_failed", "interval"), Map.entry("notify", "boolean"),
            Map.entry("block_length", "bigint"), Map.entry("fair_by", "text"), Map.entry("rate", "int"),
            Map.entry("per", "interval"), Map.entry("burst", "int"), Map.entry("max_rate", "int"),
            Map.entry("shares", "int[]"), Map.entry("in_order", "boolean"),
            Map.entry("max_run_time", "interval"), Map.entry("separator", "text"));
    /** The SQL types of the options of redrive. */
    static final Map<String, String> OPTIONS = Map.of("group_key", "text", "max_tasks", "int",
            "to_queue", "text", "to_priority", "int", "to_group", "text");

    private final StringBuilder sql;
    private final List<Object> values = new ArrayList<>();

    Call(String function, String type, Object first) {
        sql = new StringBuilder("SELECT fairq." + function + "(?::text::" + type);
        values.add(first);
    }

    void add(String name, Map<String, String> types, Object value) {
        String type = types.get(name);
        if (type == null) {
            throw new IllegalArgumentException("fairq: there is no setting \"" + name + "\"");
        }
        sql.append(", ").append(name).append(" => ?::text::").append(type);
        values.add(value);
    }

    /** Calls the function, and returns its result as text. */
    String run(Connection db) throws SQLException {
        return Sql.one(db, sql + ")::text", row -> row.getString(1), values.toArray());
    }
}
