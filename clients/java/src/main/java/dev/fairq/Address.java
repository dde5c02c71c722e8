package dev.fairq;

import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.SQLException;
import java.util.Map;
import java.util.Properties;
import java.util.StringJoiner;
import org.postgresql.Driver;

/** Where a worker's database is, and the settings of its connections. */
final class Address {
    final String url;
    final Properties properties = new Properties();

    /** With no url, PGHOST and so on have the address, as in other PostgreSQL programs. */
    Address(String url, Properties given, String name, Map<String, String> environment) {
        properties.setProperty("ApplicationName", name);
        properties.setProperty("connectTimeout", "10");
        properties.setProperty("socketTimeout", "15"); // each statement has a limit of its own
        properties.setProperty("tcpKeepAlive", "true");
        // behind a pooler the next statement may run on another connection
        properties.setProperty("prepareThreshold", "0");
        this.url = url == null ? fromEnvironment(environment) : url;
        properties.putAll(given);
        if (Driver.parseURL(this.url, properties) == null) {
            throw new IllegalArgumentException("fairq: the url must be like jdbc:postgresql://HOST/DATABASE");
        }
    }

    Connection connect() throws SQLException {
        return new Driver().connect(url, properties);
    }

    private String fromEnvironment(Map<String, String> environment) {
        String user = environment.getOrDefault("PGUSER", System.getProperty("user.name"));
        String database = environment.getOrDefault("PGDATABASE", user);
        String host = environment.getOrDefault("PGHOST", "localhost");
        String port = environment.getOrDefault("PGPORT", "5432");
        properties.setProperty("user", user);
        set("password", environment.get("PGPASSWORD"));
        set("sslmode", environment.get("PGSSLMODE"));
        if ("read-write".equals(environment.get("PGTARGETSESSIONATTRS"))) {
            properties.setProperty("targetServerType", "primary");
        }
        String hosts = hosts(host.split(","), port.split(","));
        if (host.startsWith("/")) {
            properties.setProperty("socketFactory", UnixSocketFactory.class.getName());
            properties.setProperty("socketFactoryArg", host + "/.s.PGSQL." + port);
            properties.setProperty("sslmode", "disable");
            hosts = "localhost:" + port;
        }
        return "jdbc:postgresql://" + hosts + "/"
                + URLEncoder.encode(database, StandardCharsets.UTF_8).replace("+", "%20");
    }

    /** HOST:PORT of each host.  There is a port for each host, or one for all hosts. */
    private static String hosts(String[] names, String[] ports) {
        if (ports.length > 1 && ports.length != names.length) {
            throw new IllegalArgumentException("fairq: PGHOST has " + names.length + " hosts, and PGPORT has "
                    + ports.length + " ports");
        }
        StringJoiner hosts = new StringJoiner(",");
        for (int i = 0; i < names.length; i++) {
            hosts.add((names[i].contains(":") ? "[" + names[i] + "]" : names[i]) + ":"
                    + ports[ports.length == 1 ? 0 : i]);
        }
        return hosts.toString();
    }

    private void set(String name, String value) {
        if (value != null) {
            properties.setProperty(name, value);
        }
    }
}
