import io.debezium.embedded.Connect;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.ObjectOutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Debezium Embedded: its MySQL or PostgreSQL connector in its own engine, to a consumer that counts.
 *
 * <p>Format {@code connect} hands over Connect's records as they are, {@code json} their JSON, which the engine
 * makes on several threads. With {@code output}, topic, key, value and headers of each message are written to
 * that file, one line each. With {@code kafka}, the address of brokers, JSON messages are sent there; those of a
 * batch of the engine are delivered before it is marked as done, as Debezium Server does it.
 */
final class DebeziumPeer {
    private static final String NAME = "bench";

    public static void main(String[] arguments) throws Exception {
        Task task = Task.read();
        if (task.has("output")) {
            run(DebeziumEngine.create(Json.class, Json.class, Json.class), writer(task), task);
        } else if (task.has("kafka")) {
            run(DebeziumEngine.create(Json.class), sender(task), task);
        } else if (task.get("format").equals("json")) {
            run(DebeziumEngine.create(Json.class), counter(task), task);
        } else {
            run(DebeziumEngine.create(Connect.class), counter(task), task);
        }
    }

    private static <V> void run(
            DebeziumEngine.Builder<ChangeEvent<V, V>> builder,
            DebeziumEngine.ChangeConsumer<ChangeEvent<V, V>> consumer,
            Task task) throws IOException {
        try (DebeziumEngine<ChangeEvent<V, V>> engine = builder
                .using(properties(task))
                .using((success, message, error) -> {
                    if (!success) {
                        System.err.println(message);
                        if (error != null) {
                            error.printStackTrace();
                        }
                    }
                })
                .notifying(consumer)
                .build()) {
            engine.run();
        }
    }

    private static <V> DebeziumEngine.ChangeConsumer<ChangeEvent<V, V>> counter(Task task) {
        Counter counter = new Counter(task.number("expected"));
        return (records, committer) -> {
            long changes = records.stream().filter(DebeziumPeer::isChange).count();
            if (changes > 0) {
                counter.add(changes);
            }
            for (ChangeEvent<V, V> record : records) {
                committer.markProcessed(record);
            }
            committer.markBatchFinished();
        };
    }

    private static DebeziumEngine.ChangeConsumer<ChangeEvent<String, String>> sender(Task task) {
        Properties p = new Properties();
        p.setProperty("bootstrap.servers", task.get("kafka"));
        p.setProperty("acks", "all");
        p.setProperty("linger.ms", "5");
        p.setProperty("batch.size", "500000");
        p.setProperty("buffer.memory", "134217728");
        KafkaProducer<String, String> producer =
                new KafkaProducer<>(p, new StringSerializer(), new StringSerializer());
        Counter counter = new Counter(task.number("expected"));
        AtomicReference<Exception> lost = new AtomicReference<>();
        return (records, committer) -> {
            long changes = 0;
            for (ChangeEvent<String, String> record : records) {
                ProducerRecord<String, String> message =
                        new ProducerRecord<>(record.destination(), record.key(), record.value());
                producer.send(message, (done, error) -> {
                    if (error != null) {
                        lost.compareAndSet(null, error);
                    }
                });
                changes += isChange(record) ? 1 : 0;
            }
            producer.flush();
            if (lost.get() != null) {
                throw new IllegalStateException(lost.get());
            }
            for (ChangeEvent<String, String> record : records) {
                committer.markProcessed(record);
            }
            committer.markBatchFinished();
            if (changes > 0) {
                counter.add(changes);
            }
        };
    }

    private static DebeziumEngine.ChangeConsumer<ChangeEvent<String, String>> writer(Task task)
            throws IOException {
        BufferedWriter file = Files.newBufferedWriter(Path.of(task.get("output")));
        return (records, committer) -> {
            try {
                for (ChangeEvent<String, String> record : records) {
                    file.write(line(record));
                    committer.markProcessed(record);
                }
                file.flush();
            } catch (IOException e) {
                throw new IllegalStateException(e);
            }
            committer.markBatchFinished();
        };
    }

    private static String line(ChangeEvent<String, String> record) {
        StringBuilder headers = new StringBuilder("[");
        record.headers().forEach(header -> headers.append(headers.length() > 1 ? "," : "")
                .append("[\"").append(header.getKey()).append("\",").append(header.getValue()).append("]"));
        return "[\"" + record.destination() + "\"," + record.key() + "," + record.value() + "," + headers
                + "]]\n";
    }

    /** Whether the message is a row's change: no tombstone and no heartbeat. */
    private static <V> boolean isChange(ChangeEvent<V, V> record) {
        if (record.value() instanceof org.apache.kafka.connect.source.SourceRecord source) {
            return source.value() != null;
        }
        return record.value() != null;
    }

    private static Properties properties(Task task) throws IOException {
        Properties p = new Properties();
        p.setProperty("name", NAME);
        p.setProperty("topic.prefix", NAME);
        p.setProperty("database.hostname", task.get("host"));
        p.setProperty("database.port", task.get("port"));
        p.setProperty("database.user", task.get("user"));
        p.setProperty("database.password", task.get("password"));
        p.setProperty("table.include.list", task.tables());
        p.setProperty("max.batch.size", "8192");
        p.setProperty("max.queue.size", "32768");
        p.setProperty("poll.interval.ms", "50");
        p.setProperty("snapshot.max.threads", "1");
        p.setProperty("key.converter.schemas.enable", "false");
        p.setProperty("value.converter.schemas.enable", "false");
        p.setProperty("header.converter.schemas.enable", "false");
        Path offsets = Path.of(task.get("directory"), "offsets");
        p.setProperty("offset.storage", "org.apache.kafka.connect.storage.FileOffsetBackingStore");
        p.setProperty("offset.storage.file.filename", offsets.toString());
        p.setProperty("offset.flush.interval.ms", "60000");
        if (task.has("slot")) {
            postgres(p, task);
        } else {
            mysql(p, offsets, task);
        }
        task.given().keySet().stream()
                .filter(name -> name.startsWith("debezium."))
                .forEach(name -> p.setProperty(name.substring("debezium.".length()), task.get(name)));
        return p;
    }

    private static void mysql(Properties p, Path offsets, Task task) throws IOException {
        p.setProperty("connector.class", "io.debezium.connector.mysql.MySqlConnector");
        p.setProperty("database.server.id", task.get("serverId"));
        p.setProperty("database.ssl.mode", "disabled");
        p.setProperty("driver.allowPublicKeyRetrieval", "true");
        p.setProperty("database.include.list", task.get("database"));
        p.setProperty("include.schema.changes", "false");
        p.setProperty("schema.history.internal", "io.debezium.relational.history.MemorySchemaHistory");
        p.setProperty("schema.history.internal.store.only.captured.tables.ddl", "true");
        if (task.log()) {
            writeOffsets(offsets, task);
            // the schemas are read anew and the rows are not
            p.setProperty("snapshot.mode", "recovery");
        } else {
            p.setProperty("snapshot.mode", "initial");
        }
    }

    /** Reads the slot's log from where it begins; without rows if the task is a log's. */
    private static void postgres(Properties p, Task task) {
        p.setProperty("connector.class", "io.debezium.connector.postgresql.PostgresConnector");
        p.setProperty("database.dbname", task.get("database"));
        p.setProperty("database.sslmode", "disable");
        p.setProperty("plugin.name", "pgoutput");
        p.setProperty("slot.name", task.get("slot"));
        p.setProperty("publication.name", task.get("publication"));
        p.setProperty("publication.autocreate.mode", "disabled");
        p.setProperty("snapshot.mode", task.get("snapshot"));
    }

    /** What the engine would have written had it read up to the position. */
    private static void writeOffsets(Path path, Task task) throws IOException {
        String key = "[\"" + NAME + "\",{\"server\":\"" + NAME + "\"}]";
        String value = "{\"ts_sec\":1,\"file\":\"" + task.get("file") + "\",\"pos\":" + task.get("position")
                + ",\"gtids\":\"" + task.get("gtids") + "\"}";
        Map<byte[], byte[]> offsets = new HashMap<>();
        offsets.put(key.getBytes(StandardCharsets.UTF_8), value.getBytes(StandardCharsets.UTF_8));
        try (ObjectOutputStream out = new ObjectOutputStream(Files.newOutputStream(path))) {
            out.writeObject(offsets);
        }
    }
}
