package dev.fairq;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;

/** Values in the formats of JSON and PostgreSQL. */
final class Text {
    private Text() {
    }

    /** A string in JSON. */
    static String quote(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                quoted.append('\\').append(c);
            } else if (c < ' ') {
                quoted.append(String.format("\\u%04x", (int) c));
            } else {
                quoted.append(c);
            }
        }
        return quoted.append('"').toString();
    }

    /** A JSON object, whose values are JSON texts. */
    static String object(Map<String, String> values) {
        StringJoiner object = new StringJoiner(",", "{", "}");
        values.forEach((key, value) -> object.add(quote(key) + ":" + value));
        return object.toString();
    }

    /** A JSON object with the members of both; the server keeps the last value of a name. */
    static String merge(String one, String two, String purpose) {
        if (one == null) {
            return two;
        }
        String object = one.strip();
        if (!object.startsWith("{") || !object.endsWith("}")) {
            throw new IllegalStateException("fairq: " + purpose + " must be a JSON object");
        }
        String members = object.substring(1, object.length() - 1);
        return "{" + members + (members.isBlank() ? "" : ",") + two.substring(1);
    }

    /** An array in PostgreSQL's format; null is NULL. */
    static String array(List<?> elements) {
        StringJoiner array = new StringJoiner(",", "{", "}");
        for (Object element : elements) {
            array.add(element == null ? "NULL"
                    : '"' + element.toString().replace("\\", "\\\\").replace("\"", "\\\"") + '"');
        }
        return array.toString();
    }

    /** An interval in PostgreSQL's format. */
    static String interval(Duration time) {
        return time == null ? null : time.getSeconds() + " seconds " + time.getNano() / 1000 + " microseconds";
    }
}
