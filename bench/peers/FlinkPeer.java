import java.util.Properties;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.cdc.connectors.mysql.source.MySqlSource;
import org.apache.flink.cdc.connectors.mysql.table.StartupOptions;
import org.apache.flink.cdc.connectors.shaded.org.apache.kafka.connect.source.SourceRecord;
import org.apache.flink.cdc.debezium.DebeziumDeserializationSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.SinkFunction;
import org.apache.flink.util.Collector;

/** Flink CDC in a local Flink: its MySQL source, its records as they are, a sink that counts them. */
final class FlinkPeer {
    private static final int PARALLELISM = 2;

    /** One for the process: Flink copies sinks, and they all run here. */
    private static Counter counter;

    public static void main(String[] arguments) throws Exception {
        Task task = Task.read();
        counter = new Counter(task.number("expected"));
        Configuration configuration = new Configuration();
        configuration.setString("rest.port", "0");
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.createLocalEnvironment(PARALLELISM, configuration);
        environment.getConfig().enableObjectReuse();
        environment
                .fromSource(source(task), WatermarkStrategy.noWatermarks(), "mysql")
                .addSink(new CountingSink());
        environment.execute();
    }

    private static MySqlSource<Integer> source(Task task) {
        Properties jdbc = new Properties();
        jdbc.setProperty("useSSL", "false");
        jdbc.setProperty("sslMode", "DISABLED");
        jdbc.setProperty("allowPublicKeyRetrieval", "true");
        jdbc.setProperty("queryInterceptors", StatusInterceptor.class.getName());
        Properties debezium = new Properties();
        debezium.setProperty("poll.interval.ms", "10");
        debezium.setProperty("max.batch.size", "8192");
        debezium.setProperty("max.queue.size", "32768");
        long id = task.number("serverId");
        return MySqlSource.<Integer>builder()
                .hostname(task.get("host"))
                .port((int) task.number("port"))
                .username(task.get("user"))
                .password(task.get("password"))
                .databaseList(task.get("database"))
                .tableList(task.tables())
                .serverId(id + "-" + (id + PARALLELISM))
                .serverTimeZone("UTC")
                .startupOptions(
                        task.log()
                                ? StartupOptions.specificOffset(task.get("file"), task.number("position"))
                                : StartupOptions.snapshot())
                .jdbcProperties(jdbc)
                .debeziumProperties(debezium)
                .deserializer(new Ones())
                .build();
    }

    /** A 1 for each record: nothing is converted. */
    private static final class Ones implements DebeziumDeserializationSchema<Integer> {
        @Override
        public void deserialize(SourceRecord record, Collector<Integer> out) {
            out.collect(1);
        }

        @Override
        public TypeInformation<Integer> getProducedType() {
            return Types.INT;
        }
    }

    private static final class CountingSink implements SinkFunction<Integer> {
        @Override
        public void invoke(Integer one, Context context) {
            counter.add(one);
        }
    }
}
