"""Which stream may continue from a checkpoint's offset."""

import pytest

from tailrace.config.options import parse_options
from tailrace.enumerator.offset import StreamOffset, TableProgress
from tailrace.errors import StateError
from tailrace.spark.same_stream import require_same, with_shape

LOG = {"file": "binlog.000001", "pos": 4}


def options(**given: str):
    return parse_options({"url": "mysql://db", "user": "u", "tables": "shop.orders", **given})


def stored(*done: str, unfinished: tuple[str, ...] = (), **given: str):
    tables = {name: TableProgress((1,), 1, 2) for name in unfinished}
    return with_shape(StreamOffset("initial", LOG, tables, dict.fromkeys(done, 7)), options(**given))


def test_constant_first_offset_says_no_shape():
    assert with_shape(StreamOffset(), options()) == {"v": 1}


def test_offset_with_a_shape_is_read_as_before():
    value = stored("shop.orders")
    assert value["shape"] == "row"
    assert StreamOffset.from_json(value).to_json() == {k: v for k, v in value.items() if k != "shape"}


@pytest.mark.parametrize(
    ("value", "now"),
    [
        ({"v": 1}, {}),
        (stored("shop.orders"), {}),
        ({k: v for k, v in stored("shop.orders").items() if k != "shape"}, {"shape": "envelope"}),
        (stored("shop.orders"), {"tables": "shop.orders,shop.items"}),
        (stored("shop.orders", "shop.items", shape="debezium"), {"tables": "shop.i.*", "shape": "debezium"}),
        (stored(unfinished=("shop.orders",)), {"tables": ".*\\.orders"}),
        (stored(), {"tables": "other.t"}),
    ],
)
def test_stream_continues_from_its_own_offset(value, now):
    require_same(value, options(**now))


def test_other_tables_are_refused_by_name():
    with pytest.raises(StateError) as raised:
        require_same(stored("shop.orders", unfinished=("shop.items",)), options(tables="shop.people"))
    assert raised.value.message == "the checkpoint belongs to a stream of other tables"
    assert "`shop.items`, `shop.orders`" in str(raised.value.detail)
    assert "`shop.people`" in str(raised.value.detail)
    assert "keep its own in `tables`" in str(raised.value.hint)


def test_of_many_other_tables_some_are_named():
    with pytest.raises(StateError, match=r"`shop\.t4` and 15 more;"):
        require_same(stored(*(f"shop.t{n}" for n in (0, 1, 2, 3, 4, *range(50, 65)))), options())


def test_another_shape_is_refused():
    with pytest.raises(StateError) as raised:
        require_same(stored("shop.orders", shape="envelope"), options(shape="row"))
    assert raised.value.message == "the checkpoint belongs to a stream of shape `envelope`"


def test_tables_that_a_signal_has_set_count_as_the_streams_own():
    setting = {"tables": ["shop.b"], "instead_of": ["shop.a"]}
    value = {"v": 5, "done": {"shop.b": 1}, "set": setting}
    require_same(value, options(tables="shop.a"))
    with pytest.raises(StateError, match="other tables"):
        require_same(value, options(tables="shop.c"))
