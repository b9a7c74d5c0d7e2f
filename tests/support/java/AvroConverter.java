import io.apicurio.registry.utils.converter.avro.AvroData;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.EncoderFactory;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.json.JsonConverter;

/** Connect's JSON messages with schemas, one a line, as another project's Avro converter writes them. */
public class AvroConverter {
    private static final GenericData GENERIC = new GenericData();

    public static void main(String[] args) throws Exception {
        JsonConverter json = new JsonConverter();
        json.configure(Map.of("schemas.enable", true), false);
        AvroData avro = new AvroData(100);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            SchemaAndValue message = json.toConnectData("t", line.getBytes(StandardCharsets.UTF_8));
            Schema schema = avro.fromConnectSchema(message.schema());
            Object value = avro.fromConnectData(message.schema(), message.value());
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            BinaryEncoder encoder = EncoderFactory.get().directBinaryEncoder(out, null);
            new GenericDatumWriter<Object>(schema, GENERIC).write(value, encoder);
            System.out.println(schema + "\t" + HexFormat.of().formatHex(out.toByteArray()));
        }
    }
}
