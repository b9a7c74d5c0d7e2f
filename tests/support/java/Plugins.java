import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.transforms.Transformation;

/**
 * A transform and a converter of Debezium, applied to messages that Connect's JSON converter reads.
 *
 * <p>Arguments are settings: {@code transform.type=CLASS} and {@code transform.NAME=VALUE}, {@code
 * converter.type=CLASS} and {@code converter.NAME=VALUE} of values, {@code json.NAME=VALUE} of keys, headers and,
 * without a class, values. A line is a topic, a key and a value, in JSON with schemas, separated by tabs; what is
 * empty is null. Of each record that is left a line is written: topic, key, value, and each header as
 * NAME=VALUE.
 */
public class Plugins {
    public static void main(String[] arguments) throws Exception {
        Map<String, Map<String, String>> settings = new HashMap<>();
        for (String argument : arguments) {
            String[] pair = argument.split("=", 2);
            String[] name = pair[0].split("\\.", 2);
            settings.computeIfAbsent(name[0], n -> new HashMap<>()).put(name[1], pair[1]);
        }
        Map<String, String> json = settings.getOrDefault("json", new HashMap<>());
        json.put("replace.null.with.default", "false");
        JsonConverter reader = new JsonConverter();
        reader.configure(Map.of("schemas.enable", "true", "replace.null.with.default", "false"), false);
        Transformation<SourceRecord> transform = null;
        if (settings.containsKey("transform")) {
            transform = make(settings.get("transform").remove("type"));
            transform.configure(settings.get("transform"));
        }
        Converter keys = new JsonConverter();
        keys.configure(json, true);
        Converter values = new JsonConverter();
        if (settings.containsKey("converter")) {
            values = make(settings.get("converter").remove("type"));
            values.configure(settings.get("converter"), false);
        } else {
            values.configure(json, false);
        }
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split("\t", -1);
            SchemaAndValue key = read(reader, parts[1]);
            SchemaAndValue value = read(reader, parts[2]);
            SourceRecord record = new SourceRecord(
                    Map.of(), Map.of(), parts[0], key.schema(), key.value(), value.schema(), value.value());
            if (transform != null) {
                record = transform.apply(record);
            }
            if (record == null) {
                continue;
            }
            out.print(record.topic() + "\t" + text(keys, record.topic(), record.keySchema(), record.key()));
            out.print("\t" + text(values, record.topic(), record.valueSchema(), record.value()));
            for (Header header : record.headers()) {
                out.print("\t" + header.key() + "=");
                out.print(text(keys, record.topic(), header.schema(), header.value()));
            }
            out.print("\n");
        }
        out.flush();
    }

    @SuppressWarnings("unchecked")
    private static <T> T make(String name) throws Exception {
        return (T) Class.forName(name).getDeclaredConstructor().newInstance();
    }

    private static SchemaAndValue read(JsonConverter reader, String text) {
        return reader.toConnectData("t", text.isEmpty() ? null : text.getBytes(StandardCharsets.UTF_8));
    }

    private static String text(
            Converter converter, String topic, org.apache.kafka.connect.data.Schema schema, Object value) {
        byte[] made = converter.fromConnectData(topic, schema, value);
        return made == null ? "" : new String(made, StandardCharsets.UTF_8);
    }
}
