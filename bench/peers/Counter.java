import java.util.Locale;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Counts events and prints how many there are, four times a second from the first one on and at the last.
 *
 * <p>A line is {@code {"events": 8192, "seconds": 0.25, "done": false}}, with the seconds since the first event.
 * Whoever reads the lines takes CPU time and memory from outside and ends this process.
 */
final class Counter {
    private static final long PERIOD_MS = 250;

    private final long expected;
    private final AtomicLong events = new AtomicLong();
    private volatile long firstNs;

    Counter(long expected) {
        this.expected = expected;
    }

    /** Counts events that just came; at the last one this thread goes no further. */
    void add(long number) {
        long before = events.getAndAdd(number);
        if (before == 0) {
            firstNs = System.nanoTime();
            print(number, false);
            Thread ticker = new Thread(this::tick, "counter");
            ticker.setDaemon(true);
            ticker.start();
        }
        if (before < expected && before + number >= expected) {
            print(before + number, true);
            rest();
        }
    }

    private void tick() {
        while (events.get() < expected) {
            sleep(PERIOD_MS);
            long now = events.get();
            if (now < expected) {
                print(now, false);
            }
        }
    }

    private synchronized void print(long number, boolean done) {
        double seconds = (System.nanoTime() - firstNs) / 1e9;
        System.out.println(String.format(
                Locale.ROOT, "{\"events\": %d, \"seconds\": %.6f, \"done\": %b}", number, seconds, done));
        System.out.flush();
    }

    private static void rest() {
        while (true) {
            sleep(1000);
        }
    }

    private static void sleep(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException(e);
        }
    }
}
