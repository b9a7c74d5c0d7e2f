import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/** YARN in one process: a resource manager and node managers, which start containers as processes. */
public class Yarn {
    /** Arguments: the file for the settings of clients, the number of node managers. */
    public static void main(String[] arguments) throws Exception {
        YarnConfiguration settings = new YarnConfiguration();
        settings.set(
                "yarn.resourcemanager.scheduler.class",
                "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler");
        settings.setInt("yarn.scheduler.minimum-allocation-mb", 128);
        settings.setInt("yarn.nodemanager.resource.memory-mb", 3072);
        settings.setInt("yarn.nodemanager.resource.cpu-vcores", 2);
        settings.setBoolean("yarn.nodemanager.pmem-check-enabled", false);
        settings.setBoolean("yarn.nodemanager.vmem-check-enabled", false);
        settings.set("yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", "99.5");
        MiniYARNCluster cluster = new MiniYARNCluster("tailrace", Integer.parseInt(arguments[1]), 1, 1);
        cluster.init(settings);
        cluster.start();
        if (!cluster.waitForNodeManagersToConnect(60_000)) {
            throw new IllegalStateException("the node managers did not connect");
        }
        Path file = Path.of(arguments[0]);
        Path made = Files.createTempFile(file.getParent(), "settings", null);
        try (OutputStream output = Files.newOutputStream(made)) {
            cluster.getConfig().writeXml(output);
        }
        Files.move(made, file, StandardCopyOption.ATOMIC_MOVE);
        while (System.in.read() >= 0) {}
        cluster.stop();
        System.exit(0);
    }
}
