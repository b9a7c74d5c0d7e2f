import io.debezium.config.Field;
import java.util.TreeSet;
import org.apache.kafka.connect.connector.Connector;

/** The names of the properties of a connector: of its definition, and of its class with all fields. */
public class Properties {
    public static void main(String[] arguments) throws Exception {
        TreeSet<String> names = new TreeSet<>();
        Connector connector = (Connector) Class.forName(arguments[0]).getDeclaredConstructor().newInstance();
        names.addAll(connector.config().names());
        Field.Set fields = (Field.Set) Class.forName(arguments[1]).getField("ALL_FIELDS").get(null);
        for (Field field : fields) {
            names.add(field.name());
        }
        names.forEach(System.out::println);
    }
}
