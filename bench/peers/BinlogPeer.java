import com.github.shyiko.mysql.binlog.BinaryLogClient;
import com.github.shyiko.mysql.binlog.event.DeleteRowsEventData;
import com.github.shyiko.mysql.binlog.event.EventData;
import com.github.shyiko.mysql.binlog.event.UpdateRowsEventData;
import com.github.shyiko.mysql.binlog.event.WriteRowsEventData;
import com.github.shyiko.mysql.binlog.network.SSLMode;

/** mysql-binlog-connector-java: decodes the log into Java objects, row by row, and nothing more. */
final class BinlogPeer {
    public static void main(String[] arguments) throws Exception {
        Task task = Task.read();
        Counter counter = new Counter(task.number("expected"));
        BinaryLogClient client = new BinaryLogClient(
                task.get("host"), (int) task.number("port"), task.get("user"), task.get("password"));
        client.setSSLMode(SSLMode.DISABLED);
        client.setServerId(task.number("serverId"));
        client.setBinlogFilename(task.get("file"));
        client.setBinlogPosition(task.number("position"));
        client.setKeepAlive(false);
        client.registerEventListener(event -> {
            int rows = rows(event.getData());
            if (rows > 0) {
                counter.add(rows);
            }
        });
        client.connect();
    }

    private static int rows(EventData data) {
        if (data instanceof WriteRowsEventData written) {
            return written.getRows().size();
        }
        if (data instanceof UpdateRowsEventData updated) {
            return updated.getRows().size();
        }
        if (data instanceof DeleteRowsEventData deleted) {
            return deleted.getRows().size();
        }
        return 0;
    }
}
