"""The section `functions` of pipeline files."""

import pytest

from tailrace.config.functions import PythonFunction, parse_functions
from tailrace.errors import ConfigError
from tailrace.functions import returns


def test_functions_are_named_by_module_and_name():
    found = parse_functions({"domain": "cleaning.email:domain"})
    assert found == (PythonFunction("domain", "cleaning.email", "domain"),)
    assert found[0].is_named_in("upper(DOMAIN(email))")
    assert not found[0].is_named_in("subdomain(email)")


@pytest.mark.parametrize(
    "reference",
    [
        "cleaning",
        "cleaning.domain",
        "../cleaning:domain",
        "..cleaning:domain",
        ".cleaning:domain",
        "/tmp/cleaning:domain",
        "cleaning:a.b",
        "cleaning:domain()",
        "a/b:c",
        "cleaning:domain\n",
        "",
    ],
)
def test_reference_that_is_no_name_of_a_module_is_refused(reference):
    with pytest.raises(ConfigError, match=r"`functions\.f` is wrong") as raised:
        parse_functions({"f": reference})
    assert raised.value.code == "TR-1516"


def test_wrong_and_equal_names_are_refused():
    with pytest.raises(ConfigError, match="a name in `functions` is wrong"):
        parse_functions({"a b": "m:f"})
    with pytest.raises(ConfigError, match="given twice"):
        parse_functions({"f": "m:f", "F": "m:g"})


def test_returns_wants_a_type_of_arrow():
    with pytest.raises(TypeError, match=r"pa\.string"):
        returns("string")  # type: ignore[arg-type]
