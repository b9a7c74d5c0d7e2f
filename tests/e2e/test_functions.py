"""Functions in Python that transforms call, in Spark's workers."""

from __future__ import annotations

import textwrap
from typing import Any

import pyarrow as pa
import pytest

from tailrace.config.functions import PythonFunction
from tailrace.config.model import TransformRule
from tailrace.errors import ConfigError, SinkError, TailraceError
from tailrace.model.cell import decode_cell
from tailrace.model.change import ChangeBatch
from tailrace.pipeline.functions import Functions, _Call, code_for_tasks
from tailrace.pipeline.replay import _differing, _transformed
from tailrace.pipeline.transform import Transformer
from tailrace.spark.task_errors import parse_error
from tests.support.cells import cell_batch
from tests.support.changes import INT, TEXT, changes, table

SCHEMA = table(("id", INT), ("name", TEXT), key=("id",))
ROWS = 9_000
#: No row's value may appear in an error.
SECRET = "geheim-4711"

MODULE = """
import itertools
import random

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.functions import returns

@returns(pa.string())
def joined(name: pa.Array, id: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(pc.utf8_upper(name), pc.cast(id, pa.string()), "-")

@returns(pa.bool_())
def even(id):
    return pc.equal(pc.bit_wise_and(id, 1), 0)

@returns(pa.int64())
def rows(id):
    return pa.repeat(pa.scalar(len(id), pa.int64()), len(id))

@returns(pa.string())
def number(id):
    return id

@returns(pa.int32())
def shorter(id):
    return id.slice(1)

@returns(pa.int32())
def failing(name):
    return pa.array([int(text) for text in name.to_pylist()], pa.int32())

@returns(pa.int32())
def none():
    return pa.array([], pa.int32())

@returns(pa.float64())
def chance(id):
    return pa.array([random.random() for _ in id])

_count = itertools.count()

@returns(pa.int64())
def counted(id):
    return pa.array([next(_count) for _ in id])

@returns(pa.float16())
def coded(name):
    return name.dictionary_encode()

@returns(pa.string())
def text(id):
    return "text"

@returns(pa.int64())
def chunked(id):
    return pa.chunked_array([id.slice(0, 1), id.slice(1)])

def undeclared(id):
    return id

constant = 1
"""


@pytest.fixture(scope="module")
def module(spark, tmp_path_factory):
    """A module that the workers get by `--functions-path`."""
    directory = tmp_path_factory.mktemp("functions")
    (directory / "row_functions").mkdir()
    (directory / "row_functions" / "__init__.py").touch()
    (directory / "row_functions" / "some.py").write_text(textwrap.dedent(MODULE))
    (directory / "broken_functions.py").write_text("import row_functions\nrow_functions.absent\n")
    with code_for_tasks(spark, directory):
        yield "row_functions.some"


def functions(module: str, *names: str) -> Functions:
    return Functions([PythonFunction(f"f_{name}", module, name) for name in names])


def rows(n: int = 10, name: str = "a") -> ChangeBatch:
    return changes(SCHEMA, [("r", None, {"id": i, "name": name}) for i in range(n)])


def transformed(spark, using: Functions, projection: str, batch: ChangeBatch, **rule: Any) -> list[Any]:
    transformer = Transformer([TransformRule(".*", projection, **rule)], [], functions=using)
    cells = transformer(cell_batch(spark, 0, [("snapshot", batch)]).frame).collect()
    return [row for cell in cells for row in decode_cell(bytes(cell["cell"])).image("after").to_pylist()]


def test_functions_compute_columns_and_filter_rows_in_batches_of_thousands(spark, module):
    using = functions(module, "joined", "even", "rows")
    using.require(spark)
    found = transformed(
        spark,
        using,
        "*, F_JOINED(name, id) AS j, upper(f_joined(name, id + 1)) AS k, f_rows(id) AS n",
        rows(ROWS),
        filter="f_even(id) AND id > 1",
    )
    assert found[0] == {"id": 2, "name": "a", "j": "A-2", "k": "A-3", "n": 8192}
    assert len(found) == ROWS // 2 - 1
    assert {row["n"] for row in found} == {8192, ROWS % 8192}
    # the function is known while a transform is analysed, and not to other statements
    assert not spark.catalog.functionExists("f_joined")


@pytest.mark.parametrize(
    ("call", "code", "text"),
    [
        ("f_number(id)", "TR-1518", "a int32, not string"),
        ("f_failing(name)", "TR-1519", "ValueError in some.py, line"),
    ],
)
def test_wrong_result_or_exception_names_the_function_and_no_value(spark, module, call, code, text):
    using = functions(module, "number", "failing")
    with pytest.raises(Exception, match="tailrace-error") as raised:
        transformed(spark, using, f"*, {call} AS x", rows(10, SECRET))
    error = parse_error(str(raised.value))
    assert error is not None
    assert (error.code, error.table) == (code, "shop.t")
    name = call.partition("(")[0]
    assert f"`functions.{name}`" in str(error)
    assert text in str(error)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [("shorter", [[1, 2]], "1 for 2"), ("none", [], "is called without a column"), ("text", [[1]], "a str")],
)
def test_result_needs_a_value_for_each_row(module, name, arguments, text):
    call = _Call(PythonFunction("f", module, name), "shop.t")
    with pytest.raises(SinkError, match=text) as raised:
        call(*(pa.array(values, pa.int32()) for values in arguments))
    assert raised.value.code == "TR-1518"


def test_result_may_come_in_chunks(module):
    call = _Call(PythonFunction("f", module, "chunked"), "shop.t")
    assert call(pa.array([1, 2])).to_pylist() == [1, 2]


@pytest.mark.parametrize(
    ("reference", "code", "text"),
    [
        ("no_such_module:f", "TR-1232", "on the driver .*\nDetail: .*: no module `no_such_module`"),
        ("broken_functions:f", "TR-1232", "AttributeError in broken_functions.py, line 2"),
        ("row_functions.some:absent", "TR-1517", "the module has no `absent`"),
        ("row_functions.some:constant", "TR-1517", "not callable, but a int"),
        ("row_functions.some:undeclared", "TR-1517", "does not say what it returns"),
        ("row_functions.some:coded", "TR-1517", "which Spark does not have"),
        ("os:system", "TR-1517", "does not say what it returns"),
    ],
)
def test_function_that_cannot_be_called_is_refused_at_the_start(spark, module, reference, code, text):
    name, _, attribute = reference.partition(":")
    with pytest.raises(ConfigError, match=text) as raised:
        Functions([PythonFunction("f", name, attribute)]).require(spark)
    assert raised.value.code == code


def test_name_of_a_function_of_spark_is_refused(spark, module):
    with pytest.raises(ConfigError, match=r"`functions\.Upper` has the name of a function of Spark SQL"):
        Functions([PythonFunction("Upper", module, "joined")]).require(spark)


def test_module_that_only_the_driver_has_is_missed_on_the_workers(spark, tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(TailraceError, match="cannot be imported on a worker") as raised:
        functions("only_here", "even").require(spark)
    assert raised.value.code == "TR-1232"


def test_path_without_modules_is_refused(spark, tmp_path):
    (tmp_path / "text.txt").touch()
    for path, found in ((tmp_path / "absent", "does not exist"), (tmp_path / "text.txt", "no file .zip")):
        with pytest.raises(ConfigError, match=found), code_for_tasks(spark, path):
            pass


def test_second_run_shows_values_that_are_not_of_the_row(spark, module):
    names = ("joined", "chance", "counted", "rows")
    using = functions(module, *names)
    sql = "*, f_joined(name, id) AS j, f_chance(id) AS a, f_counted(id) AS b, f_rows(id) AS c, "
    transformer = Transformer([TransformRule(".*", sql + "double('NaN') AS nan")], [], functions=using)
    first, second = (_transformed(spark, transformer, rows(500), size) for size in (1000, 64))
    assert len(first) == len(second) == 500
    found = _differing(first, second)
    found.pop("b", None)  # a count starts anew in a worker that Spark has just started
    assert found == {"a": 500, "c": 500}
