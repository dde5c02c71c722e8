package dev.fairq;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Types;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/** Executes statements whose parameters are all text, which the statements
 * cast. */
final class Sql {
    private Sql() {
    }

    /** Reads a row. */
    interface Row<T> {
        T read(ResultSet row) throws SQLException;
    }

    static <T> List<T> all(Connection db, String sql, Row<T> reader, Object... values) throws SQLException {
        try (PreparedStatement statement = db.prepareStatement(sql)) {
            bind(statement, values);
            List<T> rows = new ArrayList<>();
            try (ResultSet result = statement.executeQuery()) {
                while (result.next()) {
                    rows.add(reader.read(result));
                }
            }
            return rows;
        }
    }

    static <T> T one(Connection db, String sql, Row<T> reader, Object... values) throws SQLException {
        return all(db, sql, reader, values).get(0);
    }

    static long id(Connection db, String sql, Object... values) throws SQLException {
        return one(db, sql, row -> row.getLong(1), values);
    }

    static boolean is(Connection db, String sql, Object... values) throws SQLException {
        return one(db, sql, row -> row.getBoolean(1), values);
    }

    static void bind(PreparedStatement statement, Object... values) throws SQLException {
        for (int i = 0; i < values.length; i++) {
            if (values[i] == null) {
                statement.setNull(i + 1, Types.VARCHAR);
            } else {
                statement.setString(i + 1, text(values[i]));
            }
        }
    }

    static String text(Object value) {
        if (value instanceof Duration) {
            return Text.interval((Duration) value);
        }
        return value instanceof List ? Text.array((List<?>) value) : value.toString();
    }
}
