package dev.fairq;

/** A library for JSON, such as Jackson or Gson.  fairq itself needs none. */
public interface Json {
    /** Returns the value as JSON text. */
    String write(Object value) throws Exception;

    /** Returns the value of the JSON text. */
    <T> T read(String json, Class<T> type) throws Exception;

    /** Encodes a value. An exception names the value's purpose. */
    static String encode(Json json, Object value, String purpose) {
        if (json == null) {
            throw new IllegalStateException("fairq: " + purpose + " needs the worker's setting json");
        }
        try {
            return json.write(value);
        } catch (Exception problem) {
            throw new IllegalArgumentException("fairq: " + purpose + " cannot be encoded", problem);
        }
    }
}
