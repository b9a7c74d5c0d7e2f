import json

from tailrace.formats.encodings.schema_diff import changes


def record(**fields):
    return {"type": "record", "name": "r", "fields": [{"name": n, "type": t} for n, t in fields.items()]}


def test_added_removed_and_changed_fields_are_named():
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
    old = record(after=["null", record(id="int", gone="string", sum=decimal)], op="string")
    new = record(
        after=["null", record(id="long", sum={**decimal, "scale": 3}, note=["null", "string"])], op="string"
    )
    assert changes(json.dumps(old), json.dumps(new), "AVRO") == (
        "`after.gone` removed; `after.note` added (null or string); "
        "`after.id` changed from int to long; `after.sum` changed from decimal(10,2) to decimal(10,3)"
    )
    assert changes(json.dumps(old), json.dumps(old), "AVRO") == ""


def test_long_lists_of_changes_are_cut():
    new = record(**{f"c{i}": "int" for i in range(13)})
    assert changes(json.dumps(record()), json.dumps(new), "AVRO").endswith("`c9` added (int) and 3 more")


def test_fields_of_protobuf_messages_are_compared():
    old = "message Envelope {\n  Value before = 1;\n  message Value {\n    int32 id = 1;\n  }\n}\n"
    new = old.replace("int32 id = 1;", "int64 id = 1;\n    optional string note = 2;")
    assert changes(old, new, "PROTOBUF") == (
        "`Value.note` added (optional string = 2); `Value.id` changed from int32 = 1 to int64 = 1"
    )
