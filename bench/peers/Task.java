import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/**
 * What to read: lines {@code name=value} on standard input up to an empty one, so a password is in no command line.
 *
 * <p>When standard input ends, whoever started this process is gone, and so is this process.
 */
record Task(Map<String, String> given) {
    static Task read() throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Map<String, String> given = new HashMap<>();
        for (String line = in.readLine(); line != null && !line.isEmpty(); line = in.readLine()) {
            int end = line.indexOf('=');
            given.put(line.substring(0, end), line.substring(end + 1));
        }
        Thread watch = new Thread(() -> awaitEnd(in), "end of input");
        watch.setDaemon(true);
        watch.start();
        return new Task(given);
    }

    private static void awaitEnd(BufferedReader in) {
        try {
            while (in.read() >= 0) {
                // nothing more is expected
            }
        } catch (IOException e) {
            // as good as the end
        }
        Runtime.getRuntime().halt(0);
    }

    String get(String name) {
        String value = given.get(name);
        if (value == null) {
            throw new IllegalArgumentException(name + " is missing");
        }
        return value;
    }

    boolean has(String name) {
        return given.containsKey(name);
    }

    long number(String name) {
        return Long.parseLong(get(name));
    }

    /** Whether a log is read, from a position on; else tables, by SELECT. */
    boolean log() {
        return has("file");
    }

    /** Regular expression over {@code database.table}. */
    String tables() {
        return get("tables");
    }
}
