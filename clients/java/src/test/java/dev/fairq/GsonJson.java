package dev.fairq;

import com.google.gson.Gson;

/** The JSON library of the tests. */
final class GsonJson implements Json {
    private final Gson gson = new Gson();

    @Override
    public String write(Object value) {
        return gson.toJson(value);
    }

    @Override
    public <T> T read(String json, Class<T> type) {
        return gson.fromJson(json, type);
    }
}
