"""An archive gives back what was written, or says what is wrong with it: never something else."""

from __future__ import annotations

import base64
import json
import os
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from pyarrow import fs

from tailrace.config.option_values import archive_address
from tailrace.config.secret import Secret
from tailrace.errors import ConfigError, StateError, TailraceError, TransientSourceError
from tailrace.sources.archive import archive as archives
from tailrace.sources.archive import store
from tailrace.sources.archive.archive import Archive, now_us
from tailrace.sources.archive.expiry import expire
from tailrace.sources.archive.sealing import SealedWriter
from tailrace.sources.archive.segment import Segment
from tailrace.sources.archive.store import Store
from tailrace.sources.archive.writing import SegmentWriter

KEY = base64.b64encode(bytes(range(32))).decode()
OTHER_KEY = bytes(range(1, 33)).hex()


def file_of(archive: Path, pattern: str) -> Path:
    (found,) = archive.glob(pattern)
    return found


def key(text: str | None) -> Secret | None:
    return None if text is None else Secret(text)


def add(archive: Archive, events: bytes, *, start: int = 4, **given) -> Segment:
    """Add a segment as the archiver does."""
    last = archive.segments[-1] if archive.segments else None
    number = last.number + 1 if last else 0
    writer = SegmentWriter(archive, number)
    for at in range(0, len(events), 10):
        writer.add(events[at : at + 10])
    size, digest = writer.finish(b"index " + events[:3])
    values = {
        "number": number,
        "token": writer.token,
        "begins": last is None,
        "server": "s",
        "file": "log.000001",
        "start": start,
        "end": start + len(events),
        "checksum": True,
        "closed": False,
        "gtids": "",
        "gtids_after": "",
        "transactions": 1,
        "first_us": 1,
        "last_us": 2,
        "written_us": now_us(),
        "size": size,
        "digest": digest,
        "previous": last.digest if last else "",
    }
    segment = Segment(**{**values, **given})
    archive.append(segment)
    return segment


def made(path: Path, secret: str | None = None, count: int = 3) -> Archive:
    archive = Archive(str(path), key(secret), create=True)
    at = 4
    for number in range(count):
        add(archive, bytes([65 + number]) * 100, start=at)
        at += 100
    return archive


def read(path: Path, secret: str | None = None) -> bytes:
    """All that a reader gets."""
    archive = Archive(str(path), key(secret))
    found = b""
    for segment in archive.segments:
        for at, data in archive.events(segment, segment.start):
            assert at == 4 + len(found)
            found += data
        assert archive.index(segment).startswith(b"index ")
    return found


WHOLE = b"A" * 100 + b"B" * 100 + b"C" * 100


@pytest.mark.parametrize("secret", [None, KEY])
def test_reader_gets_what_was_written(tmp_path, secret):
    made(tmp_path / "a", secret)
    assert read(tmp_path / "a", secret) == WHOLE
    contents = b"".join(p.read_bytes() for p in (tmp_path / "a").rglob("*") if p.is_file())
    assert (b"log.000001" in contents) is False
    if secret is not None:
        assert secret.encode() not in contents
        assert base64.b64decode(secret) not in contents


def test_reader_begins_at_any_event(tmp_path):
    archive = Archive(str(tmp_path), None, create=True)
    archives_frames = bytes(range(100))
    add(archive, archives_frames)
    segment = archive.segments[0]
    for pos in (4, 30, 103, 104):
        assert b"".join(data for _, data in archive.events(segment, pos)) == archives_frames[pos - 4 :]


def test_files_are_for_their_owner_only(tmp_path):
    before = os.umask(0)
    try:
        made(tmp_path / "new" / "a", KEY)
    finally:
        os.umask(before)
    for path in [tmp_path / "new" / "a", *(tmp_path / "new" / "a").rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.parametrize("secret", [None, KEY])
@pytest.mark.parametrize("name", ["segments/000000000001-*", "manifests/000000000000"])
def test_no_changed_byte_is_read(tmp_path, secret, name):
    made(tmp_path / "a", secret)
    path = file_of(tmp_path / "a", name)
    good = path.read_bytes()
    for at in range(len(good)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x41]) + good[at + 1 :])
        with pytest.raises((StateError, ConfigError)) as caught:
            read(tmp_path / "a", secret)
        assert caught.value.code in ("TR-8204", "TR-8206")


@pytest.mark.parametrize("secret", [None, KEY])
def test_cut_file_is_an_error(tmp_path, secret):
    made(tmp_path / "a", secret)
    for name in ("segments/000000000002-*", "manifests/000000000000"):
        path = file_of(tmp_path / "a", name)
        good = path.read_bytes()
        for at in (0, 1, 9, 41, 42, len(good) // 2, len(good) - 1):
            path.write_bytes(good[:at])
            with pytest.raises(StateError) as caught:
                read(tmp_path / "a", secret)
            assert caught.value.code == "TR-8204"
        path.write_bytes(good + b"more")
        with pytest.raises(StateError):
            read(tmp_path / "a", secret)
        path.unlink()
        if name.startswith("segments"):
            with pytest.raises(StateError, match="missing"):
                read(tmp_path / "a", secret)
        path.write_bytes(good)


@pytest.mark.parametrize("secret", [None, KEY])
def test_exchanged_files_are_an_error(tmp_path, secret):
    made(tmp_path / "a", secret)
    made(tmp_path / "b", secret)
    first, second = (file_of(tmp_path / "a", f"segments/00000000000{n}-*") for n in (0, 1))
    good = first.read_bytes()
    first.write_bytes(second.read_bytes())
    with pytest.raises(StateError):
        read(tmp_path / "a", secret)
    first.write_bytes(good)
    assert read(tmp_path / "a", secret) == WHOLE
    # of another archive with the same key, with its manifest
    for name in ("segments", "manifests"):
        shutil.rmtree(tmp_path / "a" / name)
        shutil.copytree(tmp_path / "b" / name, tmp_path / "a" / name)
    with pytest.raises(StateError):
        read(tmp_path / "a", secret)


def test_manifest_without_a_segment_in_the_midst_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MANIFEST_SEGMENTS", 1)
    made(tmp_path)
    assert read(tmp_path) == WHOLE
    (tmp_path / "manifests" / "000000000001").unlink()
    with pytest.raises(StateError, match="damaged") as caught:
        read(tmp_path)
    assert "missing" in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"number": 5},
        {"previous": "0" * 64},
        {"start": 50},
        {"file": "log.000003", "start": 4},
        {"server": "other"},
        {"file": "../../etc/passwd"},
        {"file": "a/b.000001"},
        {"start": -1},
        {"end": 1 << 63},
        {"number": "1"},
        {"digest": "../../x"},
        {"token": "../../x"},
    ],
    ids=repr,
)
def test_manifest_that_does_not_fit_is_an_error(tmp_path, change):
    archive = made(tmp_path, count=2)
    values = [segment.to_json() for segment in archive.segments]
    values[1] |= change
    name = "manifests/000000000000"
    with archive.store.writing(name) as file:
        writer = SealedWriter(file, name, archive.key)
        writer.write(1, json.dumps(values).encode())
        writer.end()
    with pytest.raises(StateError) as caught:
        read(tmp_path)
    assert caught.value.code == "TR-8204"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"v": 1}', '{"v": 1, "id": "../x", "sealed": false}'])
def test_broken_description_is_an_error(tmp_path, text):
    made(tmp_path)
    (tmp_path / "archive.json").write_text(text, "latin-1")
    with pytest.raises(StateError):
        read(tmp_path)


def test_frame_cannot_claim_more_than_there_is(tmp_path):
    archive = made(tmp_path, count=1)
    path = file_of(tmp_path, "segments/000000000000-*")
    data = bytearray(path.read_bytes())
    data[46:50] = (3 << 29).to_bytes(4, "little")  # the plain size of the first frame
    path.write_bytes(data)
    segment = replace(archive.segments[0], digest=_digest(data))
    with pytest.raises(StateError):
        list(archive.events(segment, 4))


def _digest(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


def test_key_must_fit(tmp_path, monkeypatch):
    made(tmp_path / "sealed", KEY)
    made(tmp_path / "plain")
    for where, given in (("sealed", None), ("plain", KEY), ("sealed", OTHER_KEY)):
        with pytest.raises(TailraceError) as caught:
            read(tmp_path / where, given)
        assert caught.value.code == "TR-8206"
        assert str(given) not in str(caught.value)
    for bad in ("", "short", KEY[:-4], "zz" * 32):
        with pytest.raises(ConfigError) as wrong:
            read(tmp_path / "sealed", bad)
        assert wrong.value.code == "TR-8205"
        assert not bad or bad not in str(wrong.value)
    monkeypatch.setenv("ARCHIVE_KEY", KEY)
    assert read(tmp_path / "sealed", "${env:ARCHIVE_KEY}") == WHOLE


def test_second_writer_is_refused(tmp_path):
    archive = made(tmp_path)
    with Store(str(tmp_path)).locked():
        with pytest.raises(StateError, match="another process"), Store(str(tmp_path)).locked():
            pass
        # where no lock helps, the manifest tells
        other = Archive(str(tmp_path), None)
        add(other, b"x" * 10, start=304)
        with pytest.raises(StateError, match="another process"):
            add(archive, b"y" * 10, start=304)
    assert read(tmp_path) == WHOLE + b"x" * 10


@pytest.mark.parametrize("per_manifest", [1, 2, 256])
def test_oldest_log_files_expire_as_a_whole(tmp_path, monkeypatch, per_manifest):
    monkeypatch.setattr(archives, "MANIFEST_SEGMENTS", per_manifest)
    archive = Archive(str(tmp_path), None, create=True)
    for file in range(1, 5):
        for part in range(2):
            written = 1 if file < 3 else now_us()
            name = f"log.{file:06d}"
            add(archive, b"x" * 10, file=name, start=4 + 10 * part, closed=bool(part), written_us=written)
    assert expire(archive, 3600) == 4
    assert [s.number for s in Archive(str(tmp_path), None).segments] == [4, 5, 6, 7]
    assert archive.store.names("segments") == [s.name.partition("/")[2] for s in archive.segments]
    assert expire(archive, 3600) == 0
    assert expire(archive, 0) == 2
    assert [s.number for s in Archive(str(tmp_path), None).segments] == [6, 7]  # never the newest file
    add(archive, b"x" * 10, file="log.000005", start=4)
    assert [s.number for s in Archive(str(tmp_path), None).segments] == [6, 7, 8]


def test_missing_archive_and_unreadable_one_are_told_apart(tmp_path):
    with pytest.raises(StateError) as missing:
        Archive(str(tmp_path / "nothing"), None)
    assert missing.value.code == "TR-8207"
    made(tmp_path / "a")
    path = file_of(tmp_path / "a", "segments/000000000001-*")
    path.unlink()
    path.mkdir()
    with pytest.raises((StateError, TransientSourceError)):
        read(tmp_path / "a")


def test_object_store_holds_the_same(tmp_path, monkeypatch):
    """Other file systems of Arrow are used by the same calls; here one of a local directory is one."""

    def from_uri(uri):
        assert uri == "s3://bucket/path"
        return fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "bucket/path"

    monkeypatch.setattr(store, "_from_uri", from_uri)
    archive = Archive("s3a://bucket/path", key(KEY), create=True)
    with archive.store.locked():
        for number in range(3):
            add(archive, bytes([65 + number]) * 100, start=4 + 100 * number)
    assert read("s3://bucket/path", KEY) == WHOLE
    writer = SegmentWriter(archive, 3)
    writer.add(b"x")
    writer.abandon()
    assert read("s3://bucket/path", KEY) == WHOLE


def test_address_holds_no_password():
    for text in ("s3://key:secret@bucket/path", "s3://key@bucket/path", "", "a\0b"):
        with pytest.raises(ValueError, match=r"user|empty") as caught:
            archive_address(text)
        assert "secret" not in str(caught.value)
    with pytest.raises(TailraceError) as unknown:
        Store("gopher://secret/path")
    assert unknown.value.code == "TR-8201"
    assert "secret" not in str(unknown.value)
