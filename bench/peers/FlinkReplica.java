import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/**
 * A replica made by Flink SQL in a local Flink: Flink CDC's MySQL table, inserted into a PostgreSQL table of Flink's
 * JDBC connector, which upserts and deletes by key.
 *
 * <p>What came is counted where it arrives. A line is as {@link Counter}'s, with the seconds since the target was last
 * seen without anything; the last line comes when the target's sums are the source's.
 */
final class FlinkReplica {
    private static final int PARALLELISM = 2;

    /** The columns of the benchmark's table, as Flink CDC's documents map their types. */
    private static final String COLUMNS =
            "id BIGINT NOT NULL, customer INT, quantity INT, price DECIMAL(12, 2), weight DOUBLE, "
                    + "sku STRING, title STRING, note STRING, active TINYINT, `day` DATE, "
                    + "created TIMESTAMP(3), updated %s, PRIMARY KEY (id) NOT ENFORCED";

    private static final long LOOK_MS = 100;
    /** Counting takes no more than one part in so many of a core, but at the end. */
    private static final long SHARE = 50;

    public static void main(String[] arguments) throws Exception {
        Task task = Task.read();
        StreamTableEnvironment tables = StreamTableEnvironment.create(environment(task));
        tables.executeSql(table("source", "TIMESTAMP_LTZ(6)", source(task)));
        tables.executeSql(table("target", "TIMESTAMP(6)", target(task)));
        JobClient job = tables.executeSql(
                        "INSERT INTO target SELECT id, customer, quantity, price, weight, sku, title, note, active, "
                                + "`day`, created, CAST(updated AS TIMESTAMP(6)) FROM source")
                .getJobClient()
                .orElseThrow();
        job.getJobExecutionResult().whenComplete((result, error) -> {
            if (error != null) {
                error.printStackTrace();
                Runtime.getRuntime().halt(1);
            }
        });
        try (Connection connection = DriverManager.getConnection(
                        task.get("targetUrl"), task.get("targetUser"), task.get("targetPassword"));
                Statement statement = connection.createStatement()) {
            statement.execute("SET max_parallel_workers_per_gather = 0");
            watch(task, statement);
        }
        Thread.currentThread().join();
    }

    private static StreamExecutionEnvironment environment(Task task) {
        Configuration configuration = new Configuration();
        configuration.setString("rest.port", "0");
        configuration.setString("execution.checkpointing.interval", "3 s");
        configuration.setString(
                "execution.checkpointing.dir", Path.of(task.get("directory"), "checkpoints").toUri().toString());
        // a failure ends the run instead of being tried again for ever
        configuration.setString("restart-strategy.type", "none");
        configuration.setString("pipeline.object-reuse", "true");
        configuration.setString("table.local-time-zone", "UTC");
        if (task.log()) {
            // one task reads the log; without this it would be the only one that writes
            configuration.setString("table.exec.sink.keyed-shuffle", "FORCE");
        }
        task.given().forEach((name, value) -> {
            if (name.startsWith("flink.")) {
                configuration.setString(name.substring("flink.".length()), value);
            }
        });
        return StreamExecutionEnvironment.createLocalEnvironment(PARALLELISM, configuration);
    }

    private static Map<String, String> source(Task task) {
        long id = task.number("serverId");
        Map<String, String> options = new LinkedHashMap<>();
        options.put("connector", "mysql-cdc");
        options.put("hostname", task.get("host"));
        options.put("port", task.get("port"));
        options.put("username", task.get("user"));
        options.put("password", task.get("password"));
        options.put("database-name", task.get("database"));
        options.put("table-name", task.get("table"));
        options.put("server-id", id + "-" + (id + PARALLELISM));
        options.put("server-time-zone", "UTC");
        options.put("jdbc.properties.useSSL", "false");
        options.put("jdbc.properties.sslMode", "DISABLED");
        options.put("jdbc.properties.allowPublicKeyRetrieval", "true");
        options.put("jdbc.properties.queryInterceptors", StatusInterceptor.class.getName());
        options.put("debezium.poll.interval.ms", "10");
        options.put("debezium.max.batch.size", "8192");
        options.put("debezium.max.queue.size", "32768");
        // six times the defaults, and more: a tenth less CPU time
        options.put("scan.incremental.snapshot.chunk.size", "50000");
        options.put("scan.snapshot.fetch.size", "8192");
        if (task.log()) {
            options.put("scan.startup.mode", "specific-offset");
            options.put("scan.startup.specific-offset.file", task.get("file"));
            options.put("scan.startup.specific-offset.pos", task.get("position"));
        } else {
            options.put("scan.startup.mode", "snapshot");
        }
        return given(options, task, "source.");
    }

    private static Map<String, String> target(Task task) {
        Map<String, String> options = new LinkedHashMap<>();
        options.put("connector", "jdbc");
        options.put("url", task.get("targetUrl"));
        options.put("username", task.get("targetUser"));
        options.put("password", task.get("targetPassword"));
        options.put("table-name", task.get("targetTable"));
        options.put("sink.buffer-flush.max-rows", "5000");
        options.put("sink.buffer-flush.interval", "1 s");
        return given(options, task, "target.");
    }

    /** The options, with those that the task has under a prefix. */
    private static Map<String, String> given(Map<String, String> options, Task task, String prefix) {
        task.given().forEach((name, value) -> {
            if (name.startsWith(prefix)) {
                options.put(name.substring(prefix.length()), value);
            }
        });
        return options;
    }

    private static String table(String name, String updated, Map<String, String> options) {
        String with = options.entrySet().stream()
                .map(option -> quoted(option.getKey()) + " = " + quoted(option.getValue()))
                .collect(Collectors.joining(", "));
        return "CREATE TABLE " + name + " (" + String.format(COLUMNS, updated) + ") WITH (" + with + ")";
    }

    private static String quoted(String text) {
        return "'" + text.replace("'", "''") + "'";
    }

    /** Prints how much has come until it is all there. */
    private static void watch(Task task, Statement statement) throws SQLException, InterruptedException {
        long expected = task.number("expected");
        long empty = System.nanoTime();
        boolean begun = false;
        while (true) {
            // what a query sees is what was there when it began
            long asked = System.nanoTime();
            long events = Long.parseLong(ask(statement, task.get("progress")));
            boolean done = events >= expected && ask(statement, task.get("sums")).equals(task.get("wanted"));
            if (events == 0) {
                empty = asked;
            } else {
                if (!begun) {
                    print(0, 0, false);
                    begun = true;
                }
                print(done ? expected : Math.min(events, expected - 1), asked - empty, done);
            }
            if (done) {
                return;
            }
            long cost = (System.nanoTime() - asked) / 1_000_000;
            double missing = (double) Math.max(expected - events, 0) / Math.max(events, 1);
            long rest = (long) Math.min((asked - empty) / 1e6 * missing, Integer.MAX_VALUE);
            Thread.sleep(Math.max(LOOK_MS, Math.min(SHARE * cost, rest / 2)));
        }
    }

    private static void print(long events, long ns, boolean done) {
        System.out.println(String.format(
                Locale.ROOT, "{\"events\": %d, \"seconds\": %.6f, \"done\": %b}", events, ns / 1e9, done));
        System.out.flush();
    }

    private static String ask(Statement statement, String query) throws SQLException {
        try (ResultSet rows = statement.executeQuery(query)) {
            rows.next();
            return rows.getString(1);
        }
    }
}
