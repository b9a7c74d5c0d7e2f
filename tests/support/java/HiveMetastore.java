import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;

/** The Hive metastore that Spark's own jars hold, with its database in Derby. */
public class HiveMetastore {
    /** Arguments: port, directory of the database, directory of the tables, whether columns stay as they are. */
    public static void main(String[] arguments) throws Throwable {
        String url = "jdbc:derby:;databaseName=" + arguments[1] + ";create=true";
        System.setProperty("javax.jdo.option.ConnectionURL", url);
        System.setProperty(
                "javax.jdo.option.ConnectionDriverName", "org.apache.derby.iapi.jdbc.AutoloadedDriver");
        System.setProperty("hive.metastore.warehouse.dir", arguments[2]);
        System.setProperty("hive.metastore.schema.verification", "false");
        System.setProperty("hive.metastore.disallow.incompatible.col.type.changes", arguments[3]);
        System.setProperty("datanucleus.schema.autoCreateAll", "true");
        System.setProperty("datanucleus.connectionPoolingType", "NONE");
        HiveConf conf = new HiveConf();
        // the tables of locks: Hive comes with a script for them, of which the jars have this form only
        TxnDbUtil.prepDb(conf);
        HiveMetaStore.startMetaStore(Integer.parseInt(arguments[0]), null, conf);
    }
}
