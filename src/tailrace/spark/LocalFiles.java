package tailrace;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/** Hadoop's local file system; the JVM itself does what that one starts `chmod` and `readlink` for. */
public class LocalFiles extends RawLocalFileSystem {
  private static final String MODE = "unix:mode";
  private static final int SET_ID = 06000;

  @Override
  public void setPermission(Path path, FsPermission permission) throws IOException {
    java.nio.file.Path file = pathToFile(path).toPath();
    int mode = permission.toShort();
    if (Files.isDirectory(file)) { // as `chmod` does
      mode |= ((Integer) Files.getAttribute(file, MODE)).intValue() & SET_ID;
    }
    Files.setAttribute(file, MODE, Integer.valueOf(mode));
  }

  @Override
  public FileStatus getFileLinkStatus(Path path) throws IOException {
    boolean link = Files.isSymbolicLink(pathToFile(path).toPath());
    return link ? super.getFileLinkStatus(path) : getFileStatus(path);
  }
}

/** The same for FileContext. */
class LocalFilesOfContext extends DelegateToFileSystem {
  public LocalFilesOfContext(URI uri, Configuration conf) throws IOException, URISyntaxException {
    super(uri, new LocalFiles(), conf, "file", false);
  }

  @Override
  public int getUriDefaultPort() {
    return -1; // none
  }

  @Override
  public boolean isValidName(String name) {
    return true;
  }
}
