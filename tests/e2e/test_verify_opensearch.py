"""Documents of OpenSearch are compared with their source, and repaired."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from pyspark.sql import SparkSession

from tailrace.errors import StateError
from tailrace.verify.repair import requested
from tailrace_dev.servers import MySqlServer
from tests.e2e.test_verify import Copy
from tests.support.sinks.opensearch import cluster


def test_documents_are_compared_row_by_row_and_repaired(
    request: pytest.FixtureRequest, mysql: MySqlServer, database: str, spark: SparkSession, tmp_path: Path
) -> None:
    target = cluster(request)
    settings = "index-settings: {number_of_shards: 3}, routing: {wide: part}"
    copy = Copy(mysql, database, spark, tmp_path, f"type: opensearch, url: '{target.url}', {settings}")
    copy.run()
    copy.change()
    copy.run()
    mysql.execute(f"DELETE FROM {database}.wide WHERE part > 5")  # since the batch
    report = copy.verify()
    assert [(t.target, t.source_rows, t.equal) for t in report.targets] == [
        ("small", 2, True),
        ("wide", 389, True),
    ]
    client = target.client
    # the rows that have moved from one value of the routing to another one are there once
    client.request("POST", "/wide/_refresh")
    moved = {"query": {"range": {"part": {"gte": 1200}}}, "size": 20}
    hits = client.request("POST", "/wide/_search", moved).body["hits"]["hits"]
    assert len(hits) == 11
    assert all(hit["_routing"] == str(hit["_source"]["part"]) for hit in hits)
    of_one = client.request("POST", "/wide/_search?routing=1201", moved).body
    assert (of_one["_shards"]["total"], "1201" in str(of_one["hits"])) == (1, True)
    ours = client.request("GET", "/small/_doc/2").body
    extra = {**ours["_source"], "id": 77}
    version = f"version={ours['_source']['_tailrace_version']}&version_type=external_gte"
    client.request("PUT", f"/small/_doc/2?{version}", {**ours["_source"], "v": 9})
    client.request("PUT", f"/small/_doc/77?{version}", extra)
    client.request("DELETE", f"/small/_doc/1?{version}")
    held = hits[0]["_source"]["_tailrace_version"]
    query = f"routing={hits[0]['_routing']}&version={held}&version_type=external_gte"
    client.request("DELETE", f"/wide/_doc/{quote(hits[0]['_id'], safe='')}?{query}")
    small, wide = copy.verify().targets
    assert (wide.differences.missing, wide.differences.extra) == (1, 0)
    found = small.differences
    assert (found.missing, found.extra, found.different) == (1, 1, 1)
    assert [d.columns for d in found.shown if d.columns] == [("v",)]
    requested(copy.pipeline, copy.verify())
    copy.run()
    assert copy.verify().equal
    pits = client.request("GET", "/_search/point_in_time/_all", accepted=(404,)).body
    assert pits.get("pits", []) == []
    (state,) = client.request("POST", "/tailrace_state/_mget", {"ids": ["small"]}).body["docs"]
    client.request("PUT", "/tailrace_state/_doc/small", {**state["_source"], "begun": 99})
    with pytest.raises(StateError, match="`small` is being written") as raised:
        copy.verify(patience_s=0.1)
    assert raised.value.code == "TR-8104"
