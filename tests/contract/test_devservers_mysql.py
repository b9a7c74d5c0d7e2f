"""A MySQL server of our own is set up for capture and survives what tests do to it."""

from tailrace_dev.servers import MySqlServer, start_mysql


def test_server_is_ready_for_capture(mysql: MySqlServer) -> None:
    settings = mysql.execute(
        "SELECT @@log_bin, @@binlog_format, @@binlog_row_image, @@binlog_row_metadata, @@gtid_mode"
    )
    assert settings == [(1, "ROW", "FULL", "FULL", "ON")]


def test_database_is_fresh(mysql: MySqlServer, database: str) -> None:
    assert mysql.execute(f"SHOW TABLES IN `{database}`") == []


def test_committed_rows_survive_sigkill() -> None:
    with start_mysql(options={"server_id": "7"}) as server:
        port = server.port
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "INSERT d.t VALUES (1)")
        server.kill()
        assert not server.running
        server.start()
        assert server.port == port
        assert server.execute("SELECT id, @@server_id FROM d.t") == [(1, 7)]
        directory = server.directory
    assert not directory.exists()


def test_every_server_has_its_own_uuid(mysql: MySqlServer) -> None:
    with start_mysql() as other:
        assert other.execute("SELECT @@server_uuid") != mysql.execute("SELECT @@server_uuid")
