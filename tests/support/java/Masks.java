import io.debezium.relational.Column;
import io.debezium.relational.mapping.ColumnMapper;
import io.debezium.relational.mapping.MaskStrings;
import io.debezium.relational.mapping.TruncateColumn;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.sql.Types;
import java.util.HexFormat;

/**
 * Debezium's masks of texts. A line is KIND, ARGUMENT, the column's length (-1: none), and the text in hex of UTF-8,
 * with tabs between them; KIND is truncate, stars, or a version and an algorithm: V1:MD5. A line in hex is printed
 * for each.
 */
public class Masks {
    private static final byte[] SALT = "pepper".getBytes(StandardCharsets.UTF_8);

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split("\t", -1);
            Column column = Column.editor().name("c").type("VARCHAR").jdbcType(Types.VARCHAR)
                    .length(Integer.parseInt(parts[2])).create();
            String text = new String(HexFormat.of().parseHex(parts[3]), StandardCharsets.UTF_8);
            Object made = mapper(parts[0], parts[1]).create(column).convert(text);
            out.println(HexFormat.of().formatHex(((String) made).getBytes(StandardCharsets.UTF_8)));
        }
        out.flush();
    }

    private static ColumnMapper mapper(String kind, String argument) {
        switch (kind) {
            case "truncate":
                return new TruncateColumn(Integer.parseInt(argument));
            case "stars":
                return new MaskStrings("*".repeat(Integer.parseInt(argument)));
            default:
                return new MaskStrings(SALT, argument, MaskStrings.HashingByteArrayStrategy.valueOf(kind));
        }
    }
}
