import com.mysql.cj.MysqlConnection;
import com.mysql.cj.Query;
import com.mysql.cj.interceptors.QueryInterceptor;
import com.mysql.cj.log.Log;
import com.mysql.cj.protocol.Resultset;
import com.mysql.cj.protocol.ServerSession;
import java.sql.Connection;
import java.sql.SQLException;
import java.util.Properties;
import java.util.function.Supplier;

/**
 * Lets Flink CDC 3.5 talk to MySQL 8.4 and newer: it asks {@code SHOW MASTER STATUS}, which is
 * {@code SHOW BINARY LOG STATUS} there.
 */
public final class StatusInterceptor implements QueryInterceptor {
    private Connection connection;

    @Override
    public QueryInterceptor init(MysqlConnection owner, Properties properties, Log log) {
        connection = (Connection) owner;
        return this;
    }

    @Override
    @SuppressWarnings("unchecked")
    public <T extends Resultset> T preProcess(Supplier<String> sql, Query query) {
        String text = sql == null ? null : sql.get();
        if (text == null || !text.trim().equalsIgnoreCase("SHOW MASTER STATUS")) {
            return null;
        }
        try {
            // the statement stays open: its result is read later on
            return (T) connection.createStatement().executeQuery("SHOW BINARY LOG STATUS");
        } catch (SQLException e) {
            throw new IllegalStateException(e);
        }
    }

    @Override
    public <T extends Resultset> T postProcess(
            Supplier<String> sql, Query query, T result, ServerSession session) {
        return null;
    }

    @Override
    public boolean executeTopLevelOnly() {
        return false;
    }

    @Override
    public void destroy() {
        connection = null;
    }
}
