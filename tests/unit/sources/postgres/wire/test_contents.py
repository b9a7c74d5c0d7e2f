"""What a stored digest says of a table whose types have labels and attributes."""

from __future__ import annotations

from tailrace.sources.postgres.wire.contents import Contents, StoredColumn, TypeValues

LOW = TypeValues(((5, "low"), (6, "high")), ())


def contents(*values: TypeValues | None) -> Contents:
    columns = (StoredColumn(n, f"c{n}", "1", "9", False, v) for n, v in enumerate(values, 1))
    return Contents(tuple(columns), 7)


def test_digest_of_a_table_without_such_types_is_the_former_one():
    assert len(contents(None).text.split(".")) == 6
    assert contents(None, LOW).text.startswith(contents(None, None).text + ".")


def test_digest_of_an_older_version_says_nothing_about_types():
    former = ".".join(contents(LOW).text.split(".")[:6])
    assert not contents(LOW).change_since(former, files_count=True)


def test_label_that_is_renamed_changes_rows_and_one_that_is_added_does_not():
    stored = contents(None, LOW).text
    renamed, added = TypeValues(((5, "lower"), (6, "high")), ()), TypeValues((*LOW.labels, (8, "top")), ())
    assert "`c2`" in contents(None, renamed).change_since(stored, files_count=False)
    assert not contents(None, added).change_since(stored, files_count=False)
    assert not contents(None, LOW, added).change_since(stored, files_count=False)


def test_attribute_changes_rows():
    stored = contents(TypeValues((), ("1 1 23 -1",))).text
    assert contents(TypeValues((), ("1 1 23 -1", "1 2 25 -1"))).change_since(stored, files_count=False)
